"""How did a job fare elsewhere? The same backend, workflow and name, on the base and on other pull requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.store.record_tables import records
from bot.store.tables import oot_dispatch, oot_workflow_job

if TYPE_CHECKING:
    from bot.store.transaction import Transaction

Row = dict[str, Any]
JOB = oot_workflow_job.c
SEEN = (
    JOB.pr_number, JOB.head_sha, JOB.conclusion, JOB.failed_tests, JOB.failed_tests_json, JOB.workflow_run_url,
    JOB.completed_at, JOB.flags,
)  # fmt: skip


async def on_base(
    tx: Transaction, job: Row, *, base_ref: str | None, base_sha: str | None, since: int, limit: int
) -> list[Row]:
    """Return the newest runs of a job on the base branch or the merge base that ended before `job` did."""
    push = records["push"].c
    pushed = sa.exists().where(
        oot_dispatch.c.id == JOB.dispatch_id,
        push.guid == oot_dispatch.c.source_guid,
        push.ref == f"refs/heads/{base_ref}",
    )
    query = sa.select(*SEEN).where(
        *_same(job, since), JOB.pr_number.is_(None), sa.or_(JOB.head_sha == base_sha, pushed)
    )
    return await tx.rows(query.order_by(JOB.completed_at.desc(), JOB.job_key).limit(limit))


async def on_other_pulls(tx: Transaction, job: Row, *, since: int, limit: int) -> list[Row]:
    """Return the newest runs of a job on other pull requests that ended before `job` did, newest first."""
    query = sa.select(*SEEN).where(
        *_same(job, since),
        JOB.pr_number.is_not(None),
        JOB.pr_number != job["pr_number"],
        JOB.head_sha != job["head_sha"],
    )
    return await tx.rows(query.order_by(JOB.completed_at.desc(), JOB.job_key).limit(limit))


def _same(job: Row, since: int) -> tuple[sa.ColumnElement[bool], ...]:
    """Same backend, workflow and name, told by the backend itself.

    Only what had ended before counts: the comparison stays what it was when the job failed, so that no old check run
    is written again because of what others did later.
    """
    return (
        JOB.job_name == job["job_name"],
        JOB.workflow_name == job["workflow_name"],
        JOB.completed_at.between(since, job["completed_at"]),
        sa.func.lower(JOB.downstream_repo) == job["downstream_repo"].lower(),
        JOB.upstream_repo == job["upstream_repo"],
        JOB.status == "completed",
        JOB.source == "callback",
        JOB.job_key != job["job_key"],
    )
