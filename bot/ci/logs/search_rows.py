"""Which logs belong to a commit: those of the repository's own jobs, and those of the runs that backends reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import sqlalchemy as sa

from bot.ci.logs.rows import reported_runs
from bot.ci.logs.tables import ci_log
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.db.transaction import Transaction

LOGS_MOST = 2_000  # of one commit


class SearchableRow(TypedDict):
    """A stored log of a commit."""

    repo: str
    repository_id: int
    job_id: int
    name: str | None
    conclusion: str | None
    blob: str


async def backends(tx: Transaction, repo: str, sha: str) -> set[str]:
    """Return the backends that reported runs for a commit, in lower case."""
    return (await reported_runs(tx, repo, sha))[0]


async def searchable(
    tx: Transaction, repo: str, sha: str, *, own: Iterable[int], of_backends: Iterable[int]
) -> list[SearchableRow]:
    """Return the stored logs of a commit, of these repositories and backends, in an order that stays."""
    _, runs = await reported_runs(tx, repo, sha)
    concerned = sa.and_(ci_log.c.repository_id.in_(sorted(own)), ci_log.c.head_sha == sha)
    ids = sorted(of_backends)
    if runs and ids:
        reported = tx.among((ci_log.c.run_id, ci_log.c.run_attempt), runs)
        concerned = sa.or_(concerned, sa.and_(ci_log.c.repository_id.in_(ids), reported))
    job = records["workflow_job"].c
    same = sa.and_(job.repository_id == ci_log.c.repository_id, job.id == ci_log.c.job_id)
    query = (
        sa.select(job.repo, ci_log.c.repository_id, ci_log.c.job_id, job.name, job.conclusion, ci_log.c.blob)
        .select_from(ci_log.join(records["workflow_job"], same))
        .where(concerned, ci_log.c.blob.is_not(None))
        .order_by(ci_log.c.repository_id, ci_log.c.job_id)
        .limit(LOGS_MOST)
    )
    return await tx.rows_as(SearchableRow, query)
