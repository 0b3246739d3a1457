"""What did each backend do on each day? Rows of any number of days, told apart by what they are added up by."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bot.domain.tally import NOTHING, Tally, outcome, tally, total

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


@dataclass(kw_only=True, slots=True)
class _Part:
    """What has been added up of one day so far."""

    spelled: tuple[int, str, int] = (0, "", 0)  # when the newest row is of, its backend and level
    tally: Tally = NOTHING
    hours: dict[str, list[int]] = field(default_factory=dict)


class Counting:
    """Adds rows up to days, a few at a time: what is kept does not depend on how many there are."""

    def __init__(self) -> None:
        self._parts: dict[tuple[int, str, str, str], _Part] = defaultdict(_Part)

    def add(self, jobs: Iterable[Row], dispatches: Iterable[Row]) -> None:
        """Add jobs, and dispatches nobody reported on; each row says whether it `counts`."""
        told: dict[tuple[int, str, str, str], tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
        for row in jobs:
            told[_part(row, row["received_at"], row["downstream_repo"])][0].append(row)
        for row in dispatches:
            told[_part(row, row["created_at"], row["backend"])][1].append(row)
        for key, (heard, silent) in told.items():
            part = self._parts[key]
            spelled = [
                (row["received_at"], row["downstream_repo"], row["downstream_repo_level"]) for row in heard
            ]
            spelled += [(row["created_at"], row["backend"], row["level"]) for row in silent]
            part.spelled = max(part.spelled, *spelled)
            part.tally = total((part.tally, tally(heard, silent)))
            _add_hours(part.hours, heard, silent)

    def days(self) -> list[Day]:
        """Return what all rows so far amount to."""
        return [
            Day(
                day=day,
                backend=part.spelled[1],
                level=part.spelled[2],
                upstream=upstream,
                event=event,
                tally=part.tally,
                hours=part.hours,
            )
            for (day, _, upstream, event), part in self._parts.items()
        ]


def _part(row: Row, at: int, backend: str) -> tuple[int, str, str, str]:
    return at // DAY, backend.casefold(), row["upstream_repo"].casefold(), row["event_type"]


def _add_hours(hours: dict[str, list[int]], jobs: list[Row], dispatches: list[Row]) -> None:
    """Count how many outcomes count towards the pass rate and how many of them are successes, by hour."""
    told = [(row["received_at"], outcome(row)) for row in jobs if row["counts"] and outcome(row) in RATED]
    silent = [
        (row["created_at"], "") for row in dispatches if row["counts"] and row["state"] == "never_started"
    ]
    for at, what in told + silent:
        hour = hours.setdefault(str(at % DAY // HOUR), [0, 0])
        hour[0] += 1
        hour[1] += what == "success"
