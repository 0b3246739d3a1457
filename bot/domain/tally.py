"""What do runs add up to? Counts and times of any set of runs; tallies of several days are added to one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from bot.domain import histogram

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Row = dict[str, Any]

OUTCOMES = {
    "success": "success",
    "failure": "failure",
    "action_required": "failure",
    "startup_failure": "failure",
    "stale": "failure",
    "timed_out": "timed_out",
    "cancelled": "cancelled",
    "skipped": "skipped",
    "neutral": "neutral",
}
ENDS = {
    "never_started": "never_started",
    "not_installed": "not_dispatched",
    "failed": "not_dispatched",
    "superseded": "superseded",
}  # what became of a dispatch nobody reported on


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """Runs by outcome, dispatches without a report by why, and histograms of times (`domain.histogram`)."""

    runs: int = 0
    success: int = 0
    failure: int = 0
    timed_out: int = 0
    cancelled: int = 0
    skipped: int = 0
    neutral: int = 0
    running: int = 0
    never_started: int = 0
    not_dispatched: int = 0
    superseded: int = 0
    execution: int = 0  # first to last report
    queue: int = 0  # dispatch to first report
    whole: int = 0  # both together, of runs whose execution time is known
    last_at: int = 0  # epoch milliseconds of the last report, 0 without any

    @property
    def rated(self) -> int:
        """How many outcomes the pass rate is made of."""
        return self.success + self.failure + self.timed_out + self.never_started

    @property
    def pass_rate(self) -> float | None:
        """Return 0..1, None when nothing counts."""
        return self.success / self.rated if self.rated else None


ADDED = tuple(field.name for field in fields(Tally) if field.name != "last_at")
_values = attrgetter(*ADDED)
NOTHING = Tally()


def total(tallies: Iterable[Tally]) -> Tally:
    """Return what tallies amount to together."""
    known = list(tallies)
    if len(known) == 1:
        return known[0]
    sums = map(sum, zip(*map(_values, known), strict=True))
    return Tally(
        **dict(zip(ADDED, sums, strict=False)), last_at=max((one.last_at for one in known), default=0)
    )


def tally(jobs: Iterable[Row], dispatches: Iterable[Row]) -> Tally:
    """Add up rows; each says itself whether it `counts`. Jobs that do not are still reports heard."""
    heard = list(jobs)
    runs = [row for row in heard if row["counts"]]
    outcomes = Counter(map(outcome, runs))
    ends = Counter(ENDS[row["state"]] for row in dispatches if row["counts"])
    known = [row for row in runs if row["execution_time"] is not None]
    return Tally(
        runs=len(runs),
        **outcomes,
        **ends,
        execution=histogram.pack(row["execution_time"] for row in known),
        queue=histogram.pack(row["queue_time"] for row in runs if row["queue_time"] is not None),
        whole=histogram.pack(row["execution_time"] + (row["queue_time"] or 0) for row in known),
        last_at=max(map(heard_at, heard), default=0),
    )


def outcome(job: Mapping[str, Any]) -> str:
    """Return which count of a tally a job belongs to."""
    if job["status"] != "completed":
        return "running"
    return OUTCOMES.get(job["conclusion"] or "", "neutral")


def heard_at(job: Row) -> int:
    """Return when the backend last spoke of a job; the sweeper's own verdict is no report."""
    return int(job["received_at"] if job["swept"] else job["updated_at"])
