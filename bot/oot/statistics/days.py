"""Days of backends: rows added up by day, backend, upstream repository and kind of event."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bot.oot.statistics import histogram
from bot.oot.statistics.stats import EMPTY, Tally, grade, outcome, tally, total
from bot.oot.statistics.tables import DayOfBackend

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.oot.statistics.store.countable_jobs import CountableJob, SilentDispatch

_Key = tuple[int, str, str, str]  # day, backend and upstream (both case folded), kind of event
DAY, HOUR = 86_400_000, 3_600_000  # milliseconds
RATED = frozenset({"success", "failure", "timed_out"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Day(DayOfBackend):
    """What one backend did on one UTC day for one upstream repository and kind of event."""

    tally: Tally
    hours: dict[str, list[int]] = field(default_factory=dict)  # hour -> [rated, success]


@dataclass(kw_only=True, slots=True)
class _Sum:
    """What has been added up of one day so far."""

    newest: tuple[int, str, int] = (0, "", 0)  # time of the newest row, its backend and level
    tally: Tally = EMPTY
    hours: dict[str, list[int]] = field(default_factory=dict)


class DayCounter:
    """Adds rows up by day, a slice at a time: memory does not grow with their number."""

    def __init__(self) -> None:
        self._sums: dict[_Key, _Sum] = defaultdict(_Sum)

    def add(self, jobs: Iterable[CountableJob], dispatches: Iterable[SilentDispatch]) -> None:
        """Add jobs, and dispatches without a report."""
        parts: dict[_Key, tuple[list[CountableJob], list[SilentDispatch]]] = defaultdict(lambda: ([], []))
        for job in jobs:
            parts[_key(job, job["received_at"], job["downstream_repo"])][0].append(job)
        for dispatch in dispatches:
            parts[_key(dispatch, dispatch["created_at"], dispatch["backend"])][1].append(dispatch)
        for key, (reported, silent) in parts.items():
            names = [
                (row["received_at"], row["downstream_repo"], row["downstream_repo_level"]) for row in reported
            ]
            names += [(row["created_at"], row["backend"], row["level"]) for row in silent]
            sums = self._sums[key]
            sums.newest = max(sums.newest, *names)
            sums.tally = total((sums.tally, tally(reported, silent)))
            _add_hours(sums.hours, reported, silent)

    def days(self) -> list[Day]:
        """Return the days of all rows so far."""
        return [
            Day(
                backend_key=backend_key,
                day=day,
                upstream_key=upstream_key,
                event_type=event_type,
                backend=sums.newest[1],
                level=sums.newest[2],
                tally=sums.tally,
                hours=sums.hours,
            )
            for (day, backend_key, upstream_key, event_type), sums in self._sums.items()
        ]


def _key(row: CountableJob | SilentDispatch, at: int, backend: str) -> _Key:
    return at // DAY, backend.casefold(), row["upstream_repo"].casefold(), row["event_type"]


def _add_hours(
    hours: dict[str, list[int]], jobs: list[CountableJob], dispatches: list[SilentDispatch]
) -> None:
    """Count by hour how many outcomes enter the pass rate, and how many of them are successes."""
    ends = [(row["received_at"], outcome(row)) for row in jobs if row["counts"] and outcome(row) in RATED]
    ends += [
        (row["created_at"], "") for row in dispatches if row["counts"] and row["state"] == "never_started"
    ]
    for at, end in ends:
        hour = hours.setdefault(str(at % DAY // HOUR), [0, 0])
        hour[0] += 1
        hour[1] += end == "success"


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
    current, previous = recent_grades(counts, now=now)
    if current == "red" and previous in {"green", "amber"}:
        return "red"
    return "green" if current == "green" and previous == "red" else ""


def recent_grades(counts: Iterable[Count], *, now: int) -> tuple[str, str]:
    """Return the grades of the last 24 whole hours and of the week before them."""
    recent, before = [0, 0], [0, 0]
    end = now // HOUR
    oldest = end - RECENT - BEFORE  # the hour before the first that counts
    for hour, rated, success in counts:
        if hour > oldest:
            part = recent if hour > end - RECENT else before
            part[0] += rated
            part[1] += success
    return _grade(recent), _grade(before)


def _grade(counts: list[int]) -> str:
    rated, success = counts
    return grade(success / rated if rated else None)
