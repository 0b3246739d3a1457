"""Numbers of one backend in one window, as people see them; each is defined in docs/statistics.md."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, TypedDict

from bot.oot.statistics import histogram

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.oot.statistics.countable_jobs import CountableJob, SilentDispatch

GREEN_FROM = 0.95
AMBER_FROM = 0.80
INFRA = "infra"  # the kind of failure that is neither the change's nor the backend's code
FAILED = frozenset({"failure", "timed_out"})  # outcomes


@dataclass(frozen=True, kw_only=True)
class BackendStats:
    """One backend in one window; a run is one job of one workflow run at its latest attempt."""

    runs: int = 0  # the sum of all counts up to `running`
    success: int = 0
    failure: int = 0  # also action_required, startup_failure and stale
    timed_out: int = 0
    cancelled: int = 0
    skipped: int = 0
    neutral: int = 0
    running: int = 0
    never_started: int = 0  # dispatches sent and never reported on
    not_run: int = 0  # the same, of backends that need not answer
    not_dispatched: int = 0  # dispatches GitHub refused, or without the App on the backend
    superseded: int = 0  # dispatches dropped for a newer commit before they were sent
    infra: int = 0  # of failure and timed_out: those whose log says that it was infrastructure
    pass_rate: float | None = None  # 0..1; None when nothing counts
    pass_rate_without_infra: float | None = None  # the same without those
    median_execution_time: float | None = None  # seconds
    p90_execution_time: float | None = None
    median_queue_time: float | None = None
    p90_queue_time: float | None = None
    last_at: int | None = None  # epoch milliseconds of the last report

    @property
    def rated(self) -> int:
        """How many outcomes the pass rate is made of."""
        return self.success + self.failure + self.timed_out + self.never_started


def numbers(of: Tally) -> BackendStats:
    """Return the numbers of a tally."""
    execution, queue = histogram.summary(of.execution), histogram.summary(of.queue)
    return BackendStats(
        runs=of.runs,
        success=of.success,
        failure=of.failure,
        timed_out=of.timed_out,
        cancelled=of.cancelled,
        skipped=of.skipped,
        neutral=of.neutral,
        running=of.running,
        never_started=of.never_started,
        not_run=of.not_run,
        not_dispatched=of.not_dispatched,
        superseded=of.superseded,
        infra=of.infra,
        pass_rate=of.pass_rate,
        pass_rate_without_infra=of.success / (of.rated - of.infra) if of.rated > of.infra else None,
        median_execution_time=execution[0],
        p90_execution_time=execution[1],
        median_queue_time=queue[0],
        p90_queue_time=queue[1],
        last_at=of.last_at or None,
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
    not_run: int = 0
    not_dispatched: int = 0
    superseded: int = 0
    infra: int = 0  # of failure and timed_out
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
        infra=sum(outcome(row) in FAILED and row.get("failure_kind") == INFRA for row in runs),
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
