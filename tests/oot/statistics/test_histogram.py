"""Times are added up as docs/statistics.md defines it: in steps, whatever their order and parts."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.oot.statistics import histogram

SECONDS = st.lists(st.floats(0, 2e6), max_size=40)


@pytest.mark.parametrize(
    ("seconds", "counted_as"),
    [
        (0, 0), (0.4, 0), (1.6, 2), (119.4, 119), (119.6, 120), (124, 120), (126, 130), (597, 600), (614, 600), (616, 630),
        (3_590, 3_600), (3_700, 3_600), (3_800, 3_900), (43_100, 43_200), (50_000, 50_400), (2_000_000, 1_209_600),
    ],
)  # fmt: skip
def test_times_are_counted_in_steps(seconds, counted_as):
    assert histogram.rounded(seconds) == counted_as


def test_a_step_is_at_most_a_twelfth_of_what_it_stands_for():
    for low, high in zip(histogram.STEPS, histogram.STEPS[1:], strict=False):
        assert low < high
        assert high - low <= max(1, low / 12)


@given(SECONDS, SECONDS)
def test_parts_add_up_to_the_whole(some, others):
    assert histogram.pack(some) + histogram.pack(others) == histogram.pack([*others, *some])
    packed = histogram.pack(some)
    assert histogram.from_bytes(histogram.to_bytes(packed)) == packed


@given(SECONDS, st.sampled_from([60, 3_600, 10_800]))
def test_middle_nine_tenths_and_share_are_those_of_the_rounded_times(seconds, limit):
    steps = sorted(map(histogram.rounded, seconds))
    middle, high = histogram.summary(histogram.pack(seconds))
    over = histogram.share_over(histogram.pack(seconds), limit)
    if not steps:
        assert (middle, high, over) == (None, None, None)
        return
    assert middle == statistics.median(steps)
    assert high == min(step for step in steps if sum(one <= step for one in steps) * 10 >= len(steps) * 9)
    assert over == pytest.approx(sum(step > limit for step in steps) / len(steps))
