"""Jobs that lowered a backend's pass rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.db.rows import select
from bot.oot.results.tables import (
    JobIdentity,
    JobName,
    JobOrigin,
    JobOutcome,
    JobPage,
    JobSubject,
    oot_workflow_job,
)
from bot.oot.statistics.stats import FAILED, OUTCOMES
from bot.oot.statistics.store.countable_jobs import COUNTS, flagged

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.db.transaction import Transaction

JOB = oot_workflow_job.c


class LoweringJob(JobIdentity, JobOutcome, JobSubject, JobPage, JobName, JobOrigin):
    """A job that counts as failed."""


async def lowering_jobs(
    tx: Transaction, backend: str, *, since: int, upstreams: Collection[str], limit: int
) -> list[LoweringJob]:
    """Return a backend's newest jobs that count as failed, of these upstream repositories."""
    query = select(LoweringJob, oot_workflow_job).where(
        sa.func.lower(JOB.downstream_repo) == backend.casefold(),
        JOB.received_at >= since,
        JOB.status == "completed",
        JOB.conclusion.in_([word for word, end in OUTCOMES.items() if end in FAILED]),
        sa.func.lower(JOB.upstream_repo).in_([one.lower() for one in upstreams]),
        COUNTS,
        ~flagged("refused"),
    )
    return await tx.fetch(query.order_by(JOB.received_at.desc(), JOB.job_key).limit(limit))
