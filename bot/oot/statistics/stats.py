"""Numbers of one backend in one window, as people see them; each is defined in docs/statistics.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.oot.statistics import histogram

if TYPE_CHECKING:
    from bot.oot.statistics.tally import Tally

GREEN_FROM = 0.95
AMBER_FROM = 0.80


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
        not_dispatched=of.not_dispatched,
        superseded=of.superseded,
        pass_rate=of.pass_rate,
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
