"""Which jobs passed with far fewer tests than usual."""

from __future__ import annotations

import doctest

import pytest

from bot.evidence.tests import failing


@pytest.mark.parametrize(
    ("ran", "usual", "found"),
    [
        (120, [8400, 8398, 8401, 8396, 8400], "ran 120 of 8,400 tests"),
        (4199, [8400] * 5, "ran 4,199 of 8,400 tests"),
        (4200, [8400] * 5, None),
        (0, [], None),
        (0, [8400, 8400], None),  # too few runs to say what is usual
        (0, [0, 0, 0], None),
        (100, [100, 100, 100, 100, 100, 9000, 9000, 9000], None),  # only the newest five count
    ],
)
def test_which_jobs_ran_few_tests(ran, usual, found):
    little = failing.compare_with_usual(ran, usual)
    assert (str(little) if little else None) == found
    assert doctest.testmod(failing).failed == 0
