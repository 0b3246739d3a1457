"""Criteria of PyTorch's relay for L3: what a backend's jobs on pull requests have to be like.

Promotion looks at two weeks and at the time since the backend first reached L2, demotion at one week and at three of
the measures. Failures that upstream's own jobs share on the same commit do not count. What cannot be judged is neither
met nor missed.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean, median
from typing import TYPE_CHECKING

from bot.core.text import duration, percent, plural
from bot.oot.results.tables import JobAttempt, JobDurations, JobIdentity, JobOutcome, JobSpan

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

NOTHING = "–"  # noqa: RUF001 - as the relay writes it
PROMOTION_DAYS, DEMOTION_DAYS = 14, 7
MONTH = 30 * 86_400  # seconds
HOURS_3, MINUTES_30 = 3 * 3600, 30 * 60


class MeasuredJob(JobIdentity, JobOutcome, JobAttempt, JobDurations, JobSpan):
    """A completed job of a pull request, at its latest attempt."""


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """One measure of a backend and its target."""

    name: str
    measured: str
    target: str
    met: bool | None  # None: there is nothing to judge


@dataclass(frozen=True, kw_only=True)
class Measures:
    """What a backend's jobs came to."""

    jobs: int
    shared: int  # failures that upstream's own jobs share, which are not among them
    whole: float | None  # seconds from dispatch to the last report of a run, median
    longest: float | None  # execution of a job, seconds
    queue: float | None  # mean, seconds
    timeout_rate: float | None
    pass_rate: float | None


def measure(jobs: Sequence[MeasuredJob], shared: Collection[str]) -> Measures:
    """Measure the jobs of one backend; `shared` holds the keys of those whose failure is upstream's as well."""
    counted = [job for job in jobs if job["job_key"] not in shared]
    total = len(counted)
    ends = [job["conclusion"] for job in counted]
    queues = [time for job in counted if (time := job["queue_time"]) is not None]
    return Measures(
        jobs=total,
        shared=len(jobs) - total,
        whole=median(found) if (found := _spans(counted)) else None,
        longest=max((time for job in counted if (time := job["execution_time"]) is not None), default=None),
        queue=mean(queues) if queues else None,
        timeout_rate=ends.count("timed_out") / total if total else None,
        pass_rate=ends.count("success") / total if total else None,
    )


def _spans(jobs: Sequence[MeasuredJob]) -> list[float]:
    """Return how long each run took, with its wait; runs of which no wait is known say nothing."""
    runs: dict[str, list[MeasuredJob]] = {}
    for job in jobs:
        runs.setdefault(job["run_id"], []).append(job)
    spans = []
    for of_run in runs.values():
        began = [at for job in of_run if (at := job["started_at"]) is not None]
        ended = [at for job in of_run if (at := job["completed_at"]) is not None]
        waits = [time for job in of_run if (time := job["queue_time"]) is not None]
        if began and ended and waits:
            spans.append(max(waits) + max(max(ended) - min(began), 0) / 1000)
    return spans


def judge_promotion(found: Measures, tenure: float | None) -> tuple[Criterion, ...]:
    """Judge what promotion to L3 asks for; `tenure` is the time since the backend reached L2, seconds."""
    held = Criterion(
        name="Time at L2",
        measured=plural(int(tenure // 86_400), "day") if tenure is not None else NOTHING,
        target="≥ 1 month",
        met=None if tenure is None else tenure >= MONTH,
    )
    end_to_end, timeouts, passes = judge_demotion(found)
    return (
        held,
        end_to_end,
        _time("Max Execution Time", found.longest, HOURS_3),
        _time("Avg Queue Time", found.queue, MINUTES_30),
        timeouts,
        passes,
    )


def judge_demotion(found: Measures) -> tuple[Criterion, Criterion, Criterion]:
    """Judge what an L3 backend has to keep."""
    timeouts, passes = found.timeout_rate, found.pass_rate
    return (
        _time("End-to-End Time (P50)", found.whole, HOURS_3),
        Criterion(
            name="Timeout Rate",
            measured=_share(timeouts),
            target="< 1%",
            met=None if timeouts is None else timeouts < 0.01,
        ),
        Criterion(
            name="Job Pass Rate",
            measured=_share(passes),
            target="≥ 90%",
            met=None if passes is None else passes >= 0.9,
        ),
    )


def _time(name: str, seconds: float | None, below: int) -> Criterion:
    return Criterion(
        name=name,
        measured=duration(seconds) or NOTHING,
        target=f"< {duration(below)}",
        met=None if seconds is None else seconds < below,
    )


def _share(rate: float | None) -> str:
    return NOTHING if rate is None else percent(rate)
