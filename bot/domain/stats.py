"""How healthy is a backend? Pass rate, counts and times of one window, each defined in docs/statistics.md."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Row = dict[str, Any]

GREEN_FROM = 0.95
AMBER_FROM = 0.80

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


@dataclass(frozen=True, kw_only=True)
class BackendStats:
    """One backend in one window; a run is one job of one workflow run at its latest attempt."""

    runs: int = 0  # all of them: what follows up to `running` adds up to it
    success: int = 0
    failure: int = 0  # also action_required, startup_failure and stale
    timed_out: int = 0
    cancelled: int = 0
    skipped: int = 0
    neutral: int = 0
    running: int = 0
    never_started: int = 0  # dispatches sent that nobody ever reported on
    not_dispatched: int = 0  # dispatches GitHub refused, or without the App on the backend
    superseded: int = 0  # dispatches dropped for a newer commit before they were sent
    pass_rate: float | None = None  # 0..1; None when nothing counts
    median_execution_time: float | None = None  # seconds
    p90_execution_time: float | None = None
    median_queue_time: float | None = None
    p90_queue_time: float | None = None
    last_at: int | None = None  # epoch milliseconds of the last report

    @property
    def rated(self) -> int:
        """How many outcomes the pass rate is made of."""
        return self.success + self.failure + self.timed_out + self.never_started


def backend_stats(jobs: Iterable[Row], dispatches: Sequence[Row]) -> BackendStats:
    """Return the numbers of one backend from its job rows and dispatch rows of a window."""
    dropped = {row["id"] for row in dispatches if row["state"] == "superseded"}
    kept = [row for row in jobs if "refused" not in row["flags"]]
    runs = [row for row in latest_attempts(kept) if row["dispatch_id"] not in dropped]
    counts = Counter(outcome(row) for row in runs)
    ends = Counter(_end(row) for row in _unheard(dispatches, kept))
    rated = counts["success"] + counts["failure"] + counts["timed_out"] + ends["never_started"]
    execution = _known(runs, "execution_time")
    queue = _known(runs, "queue_time")
    return BackendStats(
        runs=len(runs),
        **counts,
        **ends,
        pass_rate=counts["success"] / rated if rated else None,
        median_execution_time=median(execution),
        p90_execution_time=p90(execution),
        median_queue_time=median(queue),
        p90_queue_time=p90(queue),
        last_at=max(map(_heard_at, kept), default=None),
    )


def by_backend(jobs: Iterable[Row], dispatches: Iterable[Row]) -> dict[str, BackendStats]:
    """Return the numbers of every backend that occurs, by its case folded name."""
    jobs_of, dispatches_of = defaultdict(list), defaultdict(list)
    keys: dict[str, str] = {}  # the same few names come again and again
    for job in jobs:
        name = job["downstream_repo"]
        jobs_of[keys.get(name) or keys.setdefault(name, name.casefold())].append(job)
    for dispatch in dispatches:
        dispatches_of[dispatch["backend_key"]].append(dispatch)
    return {key: backend_stats(jobs_of[key], dispatches_of[key]) for key in {**jobs_of, **dispatches_of}}


def latest_attempts(jobs: Iterable[Row]) -> list[Row]:
    """Return of each job of each run only the latest attempt."""
    latest: dict[tuple[str, ...], Row] = {}
    for row in jobs:
        name = (row["delivery_id"], row["run_id"], row["workflow_name"], row["job_name"])
        known = latest.get(name)
        if known is None or row["run_attempt"] > known["run_attempt"]:
            latest[name] = row
    return list(latest.values())


def outcome(job: Mapping[str, Any]) -> str:
    """Return which count of BackendStats a job belongs to."""
    if job["status"] != "completed":
        return "running"
    return OUTCOMES.get(job["conclusion"] or "", "neutral")


def grade(pass_rate: float | None) -> str:
    """Return green, amber, red, or none when there is no rate."""
    if pass_rate is None:
        return "none"
    if pass_rate >= GREEN_FROM:
        return "green"
    return "amber" if pass_rate >= AMBER_FROM else "red"


def median(values: Sequence[float]) -> float | None:
    """Return the middle value, the mean of the two middle ones for an even count."""
    return statistics.median(values) if values else None


def p90(values: Sequence[float]) -> float | None:
    """Return the smallest value that at least nine tenths do not exceed."""
    return sorted(values)[math.ceil(len(values) * 9 / 10) - 1] if values else None


def _unheard(dispatches: Iterable[Row], jobs: Iterable[Row]) -> list[Row]:
    """Return the dispatches without any report: a late one takes `never started` back."""
    heard = {job["dispatch_id"] for job in jobs}
    return [row for row in dispatches if row["id"] not in heard and _end(row)]


def _end(dispatch: Row) -> str:
    state = dispatch["state"]
    if state in {"failed", "not_installed"}:
        return "not_dispatched"
    return state if state in {"never_started", "superseded"} else ""


def _known(jobs: Iterable[Row], name: str) -> list[float]:
    return [row[name] for row in jobs if row[name] is not None]


def _heard_at(job: Row) -> int:
    """Return when the backend last spoke of a job; the sweeper's own verdict is no report."""
    return int(job["received_at"] if "swept" in job["flags"] else job["updated_at"])
