"""Is it a change, or noise? Medians are compared, and how much values usually differ decides what is worth a word."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

BEFORE, RECENT = 10, 5  # points: of a baseline, and of what is compared with it
LEAST_BEFORE = 3  # fewer say nothing of what is usual
NOISE = 3.0  # times the median deviation


class Change(NamedTuple):
    """A value beside what is usual."""

    now: float
    usual: float
    by: float  # share of the usual; above 0: more
    least: float  # a smaller change is noise

    @property
    def counts(self) -> bool:
        """Whether it is more than noise."""
        return abs(self.by) >= self.least


class Step(NamedTuple):
    """A level that changed and stayed."""

    first: int  # the place of the first point of the new level
    change: Change


def deviation(values: Sequence[float]) -> float:
    """Return the median of the distances from the median.

    >>> deviation([99.2, 100, 100.8, 99.2, 100.8])
    0.7999999999999972
    """
    middle = median(values)
    return median(abs(value - middle) for value in values)


def compare(now: float, before: Sequence[float], *, least: float) -> Change | None:
    """Return a value beside what was usual; None where that is not known.

    >>> compare(104, [99.2, 100, 100.8, 99.2, 100.8], least=0.05).counts
    False
    >>> compare(107, [99.2, 100, 100.8, 99.2, 100.8], least=0.05).counts
    True
    """
    if len(before) < LEAST_BEFORE:
        return None
    usual = median(before)
    if not usual:
        return None
    noise = NOISE * deviation(before) / abs(usual)
    return Change(now, usual, (now - usual) / abs(usual), max(least, noise))


def find_step(values: Sequence[float], *, least: float) -> Step | None:
    """Return the newest change of level that still holds; `values` are oldest first.

    The median of five points is compared with the ten before them.

    >>> find_step([100.0] * 12 + [107.0] * 3, least=0.05).first
    12
    >>> find_step([100.0] * 12 + [107.0] * 3 + [100.0] * 9, least=0.05) is None
    True
    """
    if len(values) < BEFORE + RECENT or max(values) - min(values) < least * abs(median(values)):
        return None
    found = None
    now = median(values[-RECENT:])
    for end in range(len(values), BEFORE + RECENT - 1, -1):
        before, recent = values[end - RECENT - BEFORE : end - RECENT], values[end - RECENT : end]
        then, still = compare(median(recent), before, least=least), compare(now, before, least=least)
        if not (then and still and then.counts and still.counts and then.by * still.by > 0):
            if found:
                break
            continue
        places = range(end - RECENT, end)
        first = next(at for at in places if _beyond(values[at], still))
        found = Step(first, still)
    return found


def _beyond(value: float, change: Change) -> bool:
    """Whether a value is on the far side of what noise explains, the same as a change."""
    by = (value - change.usual) / abs(change.usual)
    return abs(by) >= change.least and by * change.by > 0
