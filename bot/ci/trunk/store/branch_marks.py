"""A mark of the newest commits of a branch, which changes when a job on one of them does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.trunk.tables import branch_commit, ci_commit
from bot.oot.results.tables import oot_workflow_job

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

COMMIT, STORED, JOB = branch_commit.c, ci_commit.c, oot_workflow_job.c
COMMITS = 60  # newest; the page of a branch shows fewer at first


async def read_mark(tx: Transaction, repository_id: int, branch: str) -> tuple[object, ...]:
    """Return the mark: commits with the marks of upstream's jobs, and the last change of the backends' jobs."""
    same = (STORED.repository_id == COMMIT.repository_id) & (STORED.head_sha == COMMIT.sha)
    query = (
        sa.select(COMMIT.sha, COMMIT.gone, STORED.mark)
        .select_from(branch_commit.outerjoin(ci_commit, same))
        .where(COMMIT.repository_id == repository_id, COMMIT.branch == branch)
        .order_by(COMMIT.at.desc(), COMMIT.sha.desc())
        .limit(COMMITS)
    )
    commits = [tuple(row) for row in await tx.run(query)]
    shas = [sha for sha, _, _ in commits]
    changed = sa.select(sa.func.count(), sa.func.max(JOB.updated_at)).where(JOB.head_sha.in_(shas))
    backends = (await tx.run(changed)).all()
    return (tuple(commits), tuple(map(tuple, backends)))
