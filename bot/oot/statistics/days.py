"""Days of backends: rows added up by day, backend, upstream repository and kind of event."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bot.oot.statistics.tally import EMPTY, Tally, outcome, tally, total

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.oot.statistics.countable_jobs import CountableJob, SilentDispatch

_Key = tuple[int, str, str, str]  # day, backend and upstream (both case folded), kind of event
DAY, HOUR = 86_400_000, 3_600_000  # milliseconds
RATED = frozenset({"success", "failure", "timed_out"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Day:
    """What one backend did on one UTC day for one upstream repository and kind of event."""

    day: int  # days since 1970
    backend: str  # spelled as in its newest row
    level: int
    upstream: str  # case folded
    event: str
    tally: Tally
    hours: dict[str, list[int]] = field(default_factory=dict)  # hour -> [rated, success]

    @property
    def key(self) -> str:
        """The backend's case folded name."""
        return self.backend.casefold()


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
                day=day,
                backend=sums.newest[1],
                level=sums.newest[2],
                upstream=upstream,
                event=event,
                tally=sums.tally,
                hours=sums.hours,
            )
            for (day, _, upstream, event), sums in self._sums.items()
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
