"""Which logs belong to a commit: those of the repository's own jobs, and those of the runs that backends reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.logs.store.failed_jobs import REPORTED, logs_of_runs, reported_for
from bot.ci.logs.store.job_of_log import JOB, LOG, LOGS, NAME, REPO, WORKFLOW, JobName
from bot.ci.logs.tables import LogKey, ci_log
from bot.ci.trunk.tables import branch_commit
from bot.db.rows import Big, Text, select

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from bot.db.transaction import Transaction

LOGS_MOST = 2_000  # of one commit
COMMIT = branch_commit.c


class SearchableRow(LogKey, JobName):
    """A stored log of a commit."""

    repo: Text
    conclusion: Text | None
    blob: Text
    bytes: Big  # of the plain log
    sha: Text  # of the commit, of upstream for a backend's job


async def reporting_backends(tx: Transaction, repo: str, sha: str) -> set[str]:
    """Return the backends that reported runs for a commit, in lower case."""
    return set((await reported_for(tx, repo, sha)).repos)


async def searchable_logs(
    tx: Transaction,
    repo: str,
    sha: str,
    *,
    own: Iterable[int],
    of_backends: Iterable[int],
    run_id: int | None = None,
) -> list[SearchableRow]:
    """Return the stored logs of a commit, of these repositories and backends, in an order that stays.

    With `run_id` those of that run only.
    """
    concerned = sa.and_(LOG.repository_id.in_(sorted(own)), LOG.head_sha == sha)
    reported = await logs_of_runs(tx, await reported_for(tx, repo, sha))
    if reported is not None:
        concerned = sa.or_(concerned, sa.and_(LOG.repository_id.in_(sorted(of_backends)), reported))
    if run_id is not None:
        concerned = sa.and_(concerned, LOG.run_id == run_id)
    computed = {"repo": REPO, "name": NAME, "workflow_name": WORKFLOW, "conclusion": JOB.conclusion}
    query = (
        select(SearchableRow, ci_log, sha=sa.literal(sha), **computed)
        .select_from(LOGS)
        .where(concerned, LOG.blob.is_not(None), REPO.is_not(None))
        .order_by(LOG.repository_id, LOG.job_id)
        .limit(LOGS_MOST)
    )
    return await tx.fetch(query)


async def commits_of_branch(
    tx: Transaction, ids: Collection[int], branch: str, *, since: int, limit: int, start: str | None
) -> list[str]:
    """Return commits of a branch not older than a time, the newest first; those behind `start`, itself included."""
    mine = sa.and_(COMMIT.repository_id.in_(sorted(ids)), COMMIT.branch == branch, sa.not_(COMMIT.gone))
    query = sa.select(COMMIT.sha).where(mine, COMMIT.at >= since)
    if start is not None:
        at = sa.select(COMMIT.at).where(mine, COMMIT.sha == start).limit(1).scalar_subquery()
        query = query.where(sa.or_(COMMIT.at < at, sa.and_(COMMIT.at == at, COMMIT.sha >= start)))
    return list((await tx.run(query.order_by(COMMIT.at.desc(), COMMIT.sha).limit(limit))).scalars())


async def commits_with_logs(
    tx: Transaction, repo: str, ids: Collection[int], shas: Collection[str]
) -> set[str]:
    """Return those of some commits that may have stored logs."""
    own = sa.select(LOG.head_sha).where(
        LOG.repository_id.in_(sorted(ids)), LOG.head_sha.in_(sorted(shas)), LOG.blob.is_not(None)
    )
    reported = sa.select(REPORTED.head_sha).where(
        sa.func.lower(REPORTED.upstream_repo) == repo.lower(), REPORTED.head_sha.in_(sorted(shas))
    )
    return set((await tx.run(own.union(reported))).scalars())
