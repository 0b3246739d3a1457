"""What did each backend do on each day? Rows of any number of days, told apart by what they are added up by."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bot.domain.tally import Tally, outcome, tally

if TYPE_CHECKING:
    from collections.abc import Iterable

Row = dict[str, Any]
DAY, HOUR = 86_400_000, 3_600_000  # milliseconds
RATED = frozenset({"success", "failure", "timed_out"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Day:
    """What one backend did on one UTC day for one upstream repository and kind of event."""

    day: int  # days since 1970
    backend: str  # as its newest row spells it
    level: int
    upstream: str  # case folded
    event: str
    tally: Tally
    hours: dict[str, list[int]] = field(default_factory=dict)  # hour -> [rated, success]

    @property
    def key(self) -> str:
        """The backend's case folded name."""
        return self.backend.casefold()


def days(jobs: Iterable[Row], dispatches: Iterable[Row]) -> list[Day]:
    """Return the days that rows belong to; each row says whether it `counts`."""
    parts: dict[tuple[int, str, str, str], tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for row in jobs:
        parts[_part(row, row["received_at"], row["downstream_repo"])][0].append(row)
    for row in dispatches:
        parts[_part(row, row["created_at"], row["backend"])][1].append(row)
    return [
        _day(day, upstream, event, told, asked) for (day, _, upstream, event), (told, asked) in parts.items()
    ]


def _part(row: Row, at: int, backend: str) -> tuple[int, str, str, str]:
    return at // DAY, backend.casefold(), row["upstream_repo"].casefold(), row["event_type"]


def _day(day: int, upstream: str, event: str, jobs: list[Row], dispatches: list[Row]) -> Day:
    spelled = [(row["received_at"], row["downstream_repo"], row["downstream_repo_level"]) for row in jobs]
    spelled += [(row["created_at"], row["backend"], row["level"]) for row in dispatches]
    _, backend, level = max(spelled)
    return Day(
        day=day,
        backend=backend,
        level=level,
        upstream=upstream,
        event=event,
        tally=tally(jobs, dispatches),
        hours=_hours(jobs, dispatches),
    )


def _hours(jobs: list[Row], dispatches: list[Row]) -> dict[str, list[int]]:
    """Return how many outcomes count towards the pass rate and how many of them are successes, by hour."""
    hours: dict[str, list[int]] = {}
    told = [(row["received_at"], outcome(row)) for row in jobs if row["counts"] and outcome(row) in RATED]
    silent = [
        (row["created_at"], "") for row in dispatches if row["counts"] and row["state"] == "never_started"
    ]
    for at, what in told + silent:
        hour = hours.setdefault(str(at % DAY // HOUR), [0, 0])
        hour[0] += 1
        hour[1] += what == "success"
    return hours
