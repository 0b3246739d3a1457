"""How a backend's newest runs ended, one for each dispatch: since when it fails, and where it passed last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.db.rows import select
from bot.oot.results.tables import JobOutcome, JobSubject, JobTimes, oot_workflow_job
from bot.oot.statistics.stats import FAILED, OUTCOMES
from bot.oot.statistics.store.countable_jobs import COUNTS, flagged

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bot.db.transaction import Transaction

JOB = oot_workflow_job.c
NEWEST = 1_000  # jobs that are looked at


class EndedJob(JobOutcome, JobSubject, JobTimes):
    """What tells how a run ended."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run of a backend: its jobs for one dispatch."""

    job: EndedJob  # the newest of them
    failed: bool
    at: int  # epoch milliseconds: its first report

    @property
    def repo(self) -> str:
        """The upstream whose commit it was about."""
        return self.job["upstream_repo"]

    @property
    def sha(self) -> str | None:
        """The commit it was about."""
        return self.job["head_sha"]


@dataclass(frozen=True, kw_only=True)
class Streak:
    """The runs in a row of a backend that failed, up to the newest, and the run before them that passed."""

    failing: int
    first_bad: Run | None
    last_good: Run | None

    @property
    def since(self) -> int | None:
        """When the first of them failed, None where the newest run passed."""
        return self.first_bad.at if self.first_bad else None


async def read_streak(tx: Transaction, backend: str, *, hidden: Collection[str]) -> Streak:
    """Return since when a backend's runs fail, as far as its newest jobs tell; those of `hidden` upstreams aside."""
    query = select(EndedJob, oot_workflow_job).where(
        sa.func.lower(JOB.downstream_repo) == backend.lower(),
        sa.func.lower(JOB.upstream_repo).not_in(sorted(hidden)),
        ~flagged("refused"),
        COUNTS,
    )
    jobs = await tx.fetch(query.order_by(JOB.received_at.desc()).limit(NEWEST))
    return find_streak(_runs(jobs))


def find_streak(runs: Sequence[Run]) -> Streak:
    """Return the failures in a row among runs, newest first."""
    good = next((at for at, run in enumerate(runs) if not run.failed), None)
    failing = runs[:good]
    return Streak(
        failing=len(failing),
        first_bad=failing[-1] if failing else None,
        last_good=None if good is None else runs[good],
    )


def _runs(jobs: Iterable[EndedJob]) -> list[Run]:
    """Return runs with a result, newest first: one with a failed job failed, one that only passed passed."""
    found: dict[str, Run] = {}
    for job in jobs:
        outcome = OUTCOMES.get(job["conclusion"] or "")
        if outcome != "success" and outcome not in FAILED:
            continue
        newest = found.get(job["delivery_id"])
        found[job["delivery_id"]] = Run(
            job=newest.job if newest else job,
            failed=outcome in FAILED or (newest is not None and newest.failed),
            at=job["received_at"],
        )
    return list(found.values())
