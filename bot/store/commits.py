"""What do we know of an upstream commit ourselves, before GitHub is asked? Pushes, and reports nobody asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.domain.wire import SELF_TRIGGERED
from bot.store import jobs
from bot.store.tables import oot_workflow_job, records

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.store.transaction import Transaction

Row = dict[str, Any]
JOB = oot_workflow_job.c
UNASKED = (JOB.dispatch_id.is_(None), JOB.pr_number.is_(None), JOB.event_type.in_(SELF_TRIGGERED))


async def reported(tx: Transaction, sha: str) -> dict[str, Row]:
    """Return the jobs that nobody dispatched on one upstream commit, by key."""
    query = sa.select(JOB.job_key).where(JOB.head_sha == sha, *UNASKED)
    return await jobs.get(tx, list((await tx.run(query)).scalars()))


async def named(tx: Transaction, commits: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return which of some commits their backends reported on before, unasked; each is (backend, case folded; SHA)."""
    if not commits:
        return set()
    shas = sorted({sha for _, sha in commits})
    query = sa.select(sa.func.lower(JOB.downstream_repo).label("backend"), JOB.head_sha).distinct()
    rows = await tx.rows(query.where(JOB.head_sha.in_(shas), *UNASKED))
    return {(row["backend"], row["head_sha"]) for row in rows} & set(commits)


async def was_pushed(tx: Transaction, repo: str, sha: str) -> bool:
    """Return whether a commit was pushed to a repository itself, as the newest of a branch or tag."""
    push = records["push"].c
    query = sa.select(push.guid).where(push.after == sha, sa.func.lower(push.repo) == repo.lower())
    return await tx.row(query.limit(1)) is not None


async def default_branch(tx: Transaction, repo: str) -> str | None:
    """Return a repository's default branch as GitHub told last, None when it has told nothing."""
    told = records["repository"].c
    query = sa.select(told.default_branch).where(sa.func.lower(told.repo) == repo.lower())
    branch: str | None = (await tx.run(query.order_by(told.updated_at.desc().nulls_last()).limit(1))).scalar()
    return branch
