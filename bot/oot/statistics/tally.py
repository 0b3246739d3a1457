"""Tallies: counts and times of any set of runs, which can be added up over days and backends."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, TypedDict

from bot.oot.statistics import histogram

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.oot.statistics.countable_jobs import CountableJob, SilentDispatch

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
}  # how a dispatch without reports ended


class Concluded(TypedDict):
    """What the outcome of a job depends on; any row with these columns will do."""

    status: str
    conclusion: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """Runs by outcome, dispatches without a report by reason, and histograms of times (see `histogram`)."""

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
EMPTY = Tally()


def total(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of some tallies."""
    known = list(tallies)
    if len(known) == 1:
        return known[0]
    sums = map(sum, zip(*map(_values, known), strict=True))
    return Tally(
        **dict(zip(ADDED, sums, strict=False)), last_at=max((one.last_at for one in known), default=0)
    )


def tally(jobs: Iterable[CountableJob], dispatches: Iterable[SilentDispatch]) -> Tally:
    """Add up rows that count; jobs that do not count are still reports, for `last_at`."""
    reported = list(jobs)
    runs = [row for row in reported if row["counts"]]
    outcomes = Counter(map(outcome, runs))
    ends = Counter(ENDS[row["state"]] for row in dispatches if row["counts"])
    timed = [(time, row["queue_time"]) for row in runs if (time := row["execution_time"]) is not None]
    return Tally(
        runs=len(runs),
        **outcomes,
        **ends,
        execution=histogram.pack(time for time, _ in timed),
        queue=histogram.pack(time for row in runs if (time := row["queue_time"]) is not None),
        whole=histogram.pack(time + (queued or 0) for time, queued in timed),
        last_at=max(map(_last_report, reported), default=0),
    )


def outcome(job: Concluded) -> str:
    """Return the count of a tally that a job belongs to."""
    if job["status"] != "completed":
        return "running"
    return OUTCOMES.get(job["conclusion"] or "", "neutral")


def _last_report(job: CountableJob) -> int:
    """Return when the backend last reported on a job; the verdict of our own time limit is no report."""
    return job["received_at"] if job["swept"] else job["updated_at"]
