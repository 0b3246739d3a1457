"""Is it a change, or noise?

Measurements of CI are noisy in ways that a mean and a standard deviation do not survive: single outliers, machines of
two kinds, slow drift. A level is therefore a median, and what values usually differ by is the median absolute deviation
from it (Hampel, "The influence curve and its role in robust estimation", JASA 69, 1974). Of normal noise that is two
thirds of a standard deviation. asv's step detection fits medians as well (`asv/step_detect.py`), to all points at once;
here a level is compared with the points before it, so that what was said of a commit stays true as points come.

A change counts when it is
- as large as `least`, below which nothing would be done about it,
- three times the median deviation of the ten points before, and
- beyond nine tenths of the twenty before: where a metric jumps between two levels, most points are equal, and the
  median deviation knows nothing of the jumps.

docs/ci-extras.md says how often this is wrong, and `tests/job_reports/test_floors.py` measures it.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

LEVEL_POINTS, RECENT_POINTS = 10, 5  # points: of a level, and of what is compared with it
SEEN_BEFORE = 20  # points before, of which a change lies beyond most
LEAST_BEFORE = 3  # fewer say nothing of what is usual
NOISE = 3.0  # times the median deviation
OUTLIERS = 10  # one in so many points may be as far away as a change


class ValueChange(NamedTuple):
    """A value beside what is usual."""

    now: float
    usual: float
    by: float  # share of the usual; above 0: more
    least: float  # a smaller change is noise
    seen: bool  # whether values were there before, though that is not usual

    @property
    def is_large(self) -> bool:
        """Whether it is more than values usually differ by."""
        return abs(self.by) >= self.least

    @property
    def counts(self) -> bool:
        """Whether it is more than noise."""
        return self.is_large and not self.seen


class LevelChange(NamedTuple):
    """A level that changed and stayed."""

    first: int  # the place of the first point of the new level
    change: ValueChange
    counts: bool  # whether it is more than noise


def deviation(values: Sequence[float]) -> float:
    """Return the median of the distances from the median.

    >>> deviation([99.2, 100, 100.8, 99.2, 100.8])
    0.7999999999999972
    """
    middle = median(values)
    return median(abs(value - middle) for value in values)


def compare_value(now: float, before: Sequence[float], *, least: float) -> ValueChange | None:
    """Compare a value with what was usual, by up to twenty points; None if that is not known.

    >>> compare_value(104, [99.2, 100, 100.8, 99.2, 100.8], least=0.05).counts
    False
    >>> compare_value(107, [99.2, 100, 100.8, 99.2, 100.8], least=0.05).counts
    True
    >>> compare_value(110, [100, 110, 100, 100, 110, 100], least=0.05).counts  # two kinds of machines
    False
    """
    level = before[-LEVEL_POINTS:]
    if len(level) < LEAST_BEFORE:
        return None
    usual = median(level)
    if not usual:
        return None
    noise = NOISE * deviation(level) / abs(usual)
    there = sum(value >= now if now > usual else value <= now for value in before)
    seen = there > len(before) // OUTLIERS
    return ValueChange(now, usual, (now - usual) / abs(usual), max(least, noise), seen)


def find_level_change(values: Sequence[float], *, least: float) -> LevelChange | None:
    """Return the newest change of level that still holds; `values` are oldest first.

    The median of five points is compared with those before them, and so is the median of the newest five: only a level
    that still holds is reported. Neighbouring places show the same step; the oldest of them names its first point.

    >>> find_level_change([100.0] * 12 + [107.0] * 3, least=0.05).first
    12
    >>> find_level_change([100.0] * 12 + [107.0] * 3 + [100.0] * 9, least=0.05) is None
    True
    """
    if len(values) < LEVEL_POINTS + RECENT_POINTS or max(values) - min(values) < least * abs(median(values)):
        return None
    steps: list[LevelChange] = []
    for end in range(len(values), LEVEL_POINTS + RECENT_POINTS - 1, -1):
        step = _level_change_before(values, end, least=least)
        if step:
            steps.append(step)
        elif any(earlier.counts for earlier in steps):
            break
        else:
            steps = []
    return steps[-1] if any(kept.counts for kept in steps) else None


def _level_change_before(values: Sequence[float], end: int, *, least: float) -> LevelChange | None:
    """Return how the five points before a place differ from those before them, if that still lasts."""
    start = end - RECENT_POINTS
    before = values[max(start - SEEN_BEFORE, 0) : start]
    then = compare_value(median(values[start:end]), before, least=least)
    still = compare_value(median(values[-RECENT_POINTS:]), before, least=least)
    if not (then and still and then.is_large and still.is_large and then.by * still.by > 0):
        return None
    first = next(at for at in range(start, end) if _is_beyond(values[at], still))
    return LevelChange(first, still, then.counts and still.counts)


def _is_beyond(value: float, change: ValueChange) -> bool:
    """Whether a value is on the far side of what noise explains, the same as a change."""
    by = (value - change.usual) / abs(change.usual)
    return abs(by) >= change.least and by * change.by > 0
