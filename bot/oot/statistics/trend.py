"""Trends of a backend: pass rates by day, and whether it turned red or green in the last 24 hours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.oot.statistics import histogram
from bot.oot.statistics.days import HOUR
from bot.oot.statistics.stats import grade
from bot.oot.statistics.tally import Tally, total

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.oot.statistics.days import Day

Count = tuple[int, int, int]  # day or hour, outcomes that count, successes among them
Counts = tuple[Count, ...]
HOURS_A_DAY = 24
RECENT, BEFORE = HOURS_A_DAY, 7 * HOURS_A_DAY  # hours compared: the last ones with those before


def by_day(days: Iterable[Day], *, first: int, last: int) -> list[Tally | None]:
    """Return the tally of each day of a span, None for days without data."""
    parts: list[list[Tally]] = [[] for _ in range(last - first + 1)]
    for one in days:
        if first <= one.day <= last:
            parts[one.day - first].append(one.tally)
    return [total(part) if part else None for part in parts]


def pass_rates(tallies: Sequence[Tally | None]) -> list[float | None]:
    """Return pass rates, None where nothing counts."""
    return [one.pass_rate if one else None for one in tallies]


def daily(days: Iterable[Day]) -> Counts:
    """Return how many outcomes count on each day."""
    return tuple((one.day, one.tally.rated, one.tally.success) for one in days)


def hourly(days: Iterable[Day], *, first: int) -> Counts:
    """Return how many outcomes count in each hour (since 1970), from a day on."""
    return tuple(
        (one.day * HOURS_A_DAY + int(hour), rated, success)
        for one in days
        if one.day >= first
        for hour, (rated, success) in one.hours.items()
    )


def rates(counts: Iterable[Count], *, first: int, last: int) -> list[float | None]:
    """Return the pass rate of each day of a span."""
    sums = [[0, 0] for _ in range(last - first + 1)]
    for day, rated, success in counts:
        if first <= day <= last:
            sums[day - first][0] += rated
            sums[day - first][1] += success
    return [success / rated if rated else None for rated, success in sums]


def medians(tallies: Sequence[Tally | None], name: str) -> list[tuple[float | None, float | None]]:
    """Return median and p90 of a time, such as `execution`, for each tally."""
    return [histogram.summary(getattr(one, name)) if one else (None, None) for one in tallies]


def turn(counts: Iterable[Count], *, now: int) -> str:
    """Return `red` or `green` for a backend that turned so in the last 24 hours against the week before, else "".

    Red: below amber now, not before. Green: green now, red before. Whole hours are compared.
    """
    recent, before = [0, 0], [0, 0]
    end = now // HOUR
    oldest = end - RECENT - BEFORE  # the hour before the first that counts
    for hour, rated, success in counts:
        if hour > oldest:
            part = recent if hour > end - RECENT else before
            part[0] += rated
            part[1] += success
    current, previous = _grade(recent), _grade(before)
    if current == "red" and previous in {"green", "amber"}:
        return "red"
    return "green" if current == "green" and previous == "red" else ""


def _grade(counts: list[int]) -> str:
    rated, success = counts
    return grade(success / rated if rated else None)
