"""Green because nothing ran: jobs that passed with far fewer tests than they usually have. Pure."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

USUAL_RUNS = 5  # the newest trusted ones
LEAST_RUNS = 3  # fewer say nothing of what is usual
SHARE = 0.5


class FewTests(NamedTuple):
    """How many tests ran, and how many usually do."""

    ran: int
    usual: int
    files: int = 0  # left out on purpose, which explains it

    def __str__(self) -> str:
        left_out = f", {self.files:,} files left out by selection" if self.files else ""
        return f"ran {self.ran:,} of {self.usual:,} tests{left_out}"


def compare_with_usual(ran: int, usual: Sequence[int]) -> FewTests | None:
    """Return that fewer than half as many tests ran as in the newest trusted runs; None where enough ran, or who knows.

    >>> compare_with_usual(120, [8400, 8398, 8401, 8396, 8400])
    FewTests(ran=120, usual=8400, files=0)
    """
    newest = usual[:USUAL_RUNS]
    if len(newest) < LEAST_RUNS:
        return None
    middle = median(newest)
    return FewTests(ran, round(middle)) if ran < middle * SHARE else None


def explain_by_exclusions(little: FewTests, files: int, left_out: int) -> FewTests:
    """Return the same, explained if the tests that were left out on purpose, with those that ran, are enough.

    >>> explain_by_exclusions(FewTests(120, 8400), 30, 8280)
    FewTests(ran=120, usual=8400, files=30)
    >>> explain_by_exclusions(FewTests(120, 8400), 30, 400)
    FewTests(ran=120, usual=8400, files=0)
    """
    return little._replace(files=files) if little.ran + left_out >= little.usual * SHARE else little
