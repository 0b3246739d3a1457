"""Numbers of one backend in one window, as people see them; each is defined in docs/statistics.md."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING

from bot.oot.statistics import histogram
from bot.oot.statistics.tables import COUNTS, Counts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.oot.results.tables import JobOutcome
    from bot.oot.statistics.store.countable_jobs import CountableJob, SilentDispatch

GREEN_FROM = 0.95
AMBER_FROM = 0.80
INFRA = "infra"  # the kind of failure that is neither the change's nor the backend's code
FAILED = frozenset({"failure", "timed_out"})  # outcomes


@dataclass(frozen=True, kw_only=True)
class BackendStats(Counts):
    """One backend in one window."""

    pass_rate: float | None = None  # 0..1; None when nothing counts
    pass_rate_without_infra: float | None = None  # the same without failures of infrastructure
    median_execution_time: float | None = None  # seconds
    p90_execution_time: float | None = None
    median_queue_time: float | None = None
    p90_queue_time: float | None = None
    last_at: int | None = None  # epoch milliseconds of the last report


def numbers(sums: Tally) -> BackendStats:
    """Return the numbers of a tally."""
    execution, queue = histogram.summary(sums.execution), histogram.summary(sums.queue)
    rated = sums.rated - sums.infra
    return BackendStats(
        **{name: getattr(sums, name) for name in COUNTS},
        pass_rate=sums.pass_rate,
        pass_rate_without_infra=sums.success / rated if rated > 0 else None,
        median_execution_time=execution[0],
        p90_execution_time=execution[1],
        median_queue_time=queue[0],
        p90_queue_time=queue[1],
        last_at=sums.last_at or None,
    )


def grade(pass_rate: float | None) -> str:
    """Return green, amber, red, or none when there is no rate."""
    if pass_rate is None:
        return "none"
    if pass_rate >= GREEN_FROM:
        return "green"
    return "amber" if pass_rate >= AMBER_FROM else "red"


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
    "not_run": "not_run",
    "not_installed": "not_dispatched",
    "failed": "not_dispatched",
    "superseded": "superseded",
    "cancelled": "cancelled",
}  # how a dispatch without reports ended


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally(Counts):
    """Counts, and histograms of times (see `histogram`)."""

    execution: int = 0  # first to last report
    queue: int = 0  # dispatch to first report
    whole: int = 0  # both together, of runs whose execution time is known
    last_at: int = 0  # epoch milliseconds of the last report, 0 without any

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
        infra=sum(outcome(row) in FAILED and row.get("failure_kind") == INFRA for row in runs),
        execution=histogram.pack(time for time, _ in timed),
        queue=histogram.pack(time for row in runs if (time := row["queue_time"]) is not None),
        whole=histogram.pack(time + (queued or 0) for time, queued in timed),
        last_at=max(map(_last_report, reported), default=0),
    )


def outcome(job: JobOutcome) -> str:
    """Return the count of a tally that a job belongs to."""
    if job["status"] != "completed":
        return "running"
    return OUTCOMES.get(job["conclusion"] or "", "neutral")


def _last_report(job: CountableJob) -> int:
    """Return when the backend last reported on a job; the verdict of our own time limit is no report."""
    return job["received_at"] if job["swept"] else job["updated_at"]
