"""Which logs belong to a commit: those of the repository's own jobs, and those of the runs that backends reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import sqlalchemy as sa

from bot.ci.logs.failed_jobs import JOB, LOG, LOGS, NAME, REPO, logs_of, reported_for

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
    return set((await reported_for(tx, repo, sha)).repos)


async def searchable(
    tx: Transaction, repo: str, sha: str, *, own: Iterable[int], of_backends: Iterable[int]
) -> list[SearchableRow]:
    """Return the stored logs of a commit, of these repositories and backends, in an order that stays."""
    concerned = sa.and_(LOG.repository_id.in_(sorted(own)), LOG.head_sha == sha)
    reported = await logs_of(tx, await reported_for(tx, repo, sha))
    if reported is not None:
        concerned = sa.or_(concerned, sa.and_(LOG.repository_id.in_(sorted(of_backends)), reported))
    query = (
        sa.select(REPO, LOG.repository_id, LOG.job_id, NAME, JOB.conclusion, LOG.blob)
        .select_from(LOGS)
        .where(concerned, LOG.blob.is_not(None), REPO.is_not(None))
        .order_by(LOG.repository_id, LOG.job_id)
        .limit(LOGS_MOST)
    )
    return await tx.rows_as(SearchableRow, query)
