"""Has a test become slower?"""

from __future__ import annotations

import pytest

from bot.pages.tests.history import slower


@pytest.mark.parametrize(
    ("now", "before", "found"),
    [
        ([10_000] * 20, [4_000] * 20, (4_000, 10_000)),
        ([10_000] * 19, [4_000] * 20, None),  # too few
        ([6_000] * 20, [4_000] * 20, None),  # by less than five seconds
        ([9_000] * 20, [4_000] * 20, (4_000, 9_000)),
        ([14_000] * 20, [10_000] * 20, None),  # by less than half
        ([4_000] * 12 + [60_000] * 8, [4_000] * 20, None),  # now and then
        ([4_000] * 20, [10_000] * 20, None),
    ],
)
def test_slower_is_half_as_long_again_and_five_seconds(now, before, found):
    assert slower([*now, *before]) == found
