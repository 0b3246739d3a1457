"""What waits for which runner, and how long jobs waited."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bot.jobs import daily_sums, job_names
from bot.jobs.cells import STATES
from bot.jobs.settings import TrunkSettings
from bot.oot.statistics import histogram
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.jobs.branch_reads import Branch
    from bot.jobs.daily_sums import WaitingRow
    from bot.jobs.settings import NamedPatterns
    from bot.jobs.tables import RunnerDayRow

WAITING_AFTER = 5 * 60_000  # milliseconds: shorter waits are how runners start
STARTING_MOST = 10 * 60_000  # since the job's creation: later steps are not heard of before its end
STARTING_STEPS = 2  # that prepare the machine: setting up the job, starting its containers
# how the controller of scale sets names its runners
SCALE_SET = re.compile(r"-[a-z0-9]{5}-runner-[a-z0-9]{5}$")
WEEK = 7  # days
# the histogram of queue times: seconds up to which they are counted together, the rest being longer
BOUNDS = (10, 30, 60, 300, 900, 1_800, 3_600, 7_200)
IN_PROGRESS = STATES.index("in_progress")
HELD = STATES.index("waiting")  # for an approval, not for a runner
StartedJob = tuple[int, str | None, Any]  # its id, its runner, its steps as GitHub had them at its start
WAITING_MOST = 20_000
WAITING_DAYS = 3  # a job that was created before has been lost


class RunnerQueue(Struct, frozen=True, kw_only=True):
    """One runner label; seconds"""

    label: str
    waiting: int
    oldest: float | None
    busy: int
    jobs: int
    queue_p50: float | None
    queue_p90: float | None
    queue_p50_week: float | None
    queue_p90_week: float | None
    queue_counts_week: list[int]  # by queue_bounds, and a last one of longer times
    duration_p50: float | None

    @property
    def is_long(self) -> bool:
        """Whether a job waits longer than nine of ten did in the last week."""
        usual = self.queue_p90_week
        return self.oldest is not None and usual is not None and self.oldest > usual


def starting_jobs(jobs: Iterable[StartedJob]) -> set[int]:
    """Return the jobs whose scale-set runner is still being prepared: they wait, whatever GitHub says."""
    return {
        job_id
        for job_id, runner, steps in jobs
        if SCALE_SET.search(runner or "") and isinstance(steps, list) and len(steps) <= STARTING_STEPS
    }


def make_queues(
    jobs: Iterable[WaitingRow],
    days: Sequence[RunnerDayRow],
    *,
    now: int,
    today: int,
    runners: NamedPatterns,
    being_prepared: Collection[int] = (),
) -> list[RunnerQueue]:
    """Return the queue of every label, the longest present wait first; the last day is today and yesterday."""
    waiting: defaultdict[str, list[int]] = defaultdict(list)
    busy: defaultdict[str, int] = defaultdict(int)
    for job in jobs:
        label = job_names.counted_label(job["runner_label"], runners)
        if job["state"] == IN_PROGRESS and job["job_id"] not in being_prepared:
            busy[label] += 1
        elif job["state"] != HELD and job["queued_at"] is not None and now - job["queued_at"] > WAITING_AFTER:
            waiting[label].append(now - job["queued_at"])
    by_label: defaultdict[str, list[RunnerDayRow]] = defaultdict(list)
    for row in days:
        by_label[row["label"]].append(row)
    labels = waiting.keys() | busy.keys() | by_label.keys()
    queues = [_queue(label, waiting[label], busy[label], by_label[label], today) for label in labels]
    return sorted(queues, key=lambda queue: (-(queue.oldest or 0), -queue.busy, -queue.jobs, queue.label))


async def read_runner_queues(tx: Transaction, settings: Settings, branch: Branch) -> list[RunnerQueue]:
    """Return the runners of a repository by label, those with the longest wait first."""
    identifier, today = branch.repository["repository_id"], tx.now // DAY
    jobs = await daily_sums.read_unfinished(tx, identifier, tx.now - WAITING_DAYS * DAY, WAITING_MOST)
    recent = tx.now - STARTING_MOST
    started = await daily_sums.read_started(tx, identifier, recent, WAITING_MOST)
    days = await daily_sums.read_runner_days(tx, identifier, today - WEEK)
    return make_queues(
        jobs,
        days,
        now=tx.now,
        today=today,
        runners=settings.of(TrunkSettings).ci_runners,
        being_prepared=starting_jobs(started),
    )


def _queue(label: str, waiting: list[int], busy: int, days: list[RunnerDayRow], today: int) -> RunnerQueue:
    recent = [row for row in days if row["day"] >= today - 1]
    week = [row for row in days if row["day"] > today - WEEK]
    p50, p90 = histogram.summary(_sum(row["queue"] for row in recent))
    times = _sum(row["queue"] for row in week)
    p50_week, p90_week = histogram.summary(times)
    return RunnerQueue(
        label=label,
        waiting=len(waiting),
        oldest=max(waiting) / 1000 if waiting else None,
        busy=busy,
        jobs=sum(row["jobs"] for row in recent),
        queue_p50=p50,
        queue_p90=p90,
        queue_p50_week=p50_week,
        queue_p90_week=p90_week,
        queue_counts_week=histogram.counts(times, BOUNDS),
        duration_p50=histogram.summary(_sum(row["duration"] for row in week))[0],
    )


def _sum(stored: Iterable[bytes]) -> int:
    return sum(map(histogram.from_bytes, stored))
