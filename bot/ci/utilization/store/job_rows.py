"""Rows of jobs whose machine was watched, and of the runs that backends reported for a commit."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.utilization.tables import JobKey, JobRow, JobSummary, utilization_job
from bot.db.rows import select
from bot.db.statements import Statement
from bot.db.transaction import among_given
from bot.oot.results.tables import oot_workflow_job

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.db.transaction import Transaction

J = utilization_job.c
KEY = tuple(JobKey.__annotations__)
RUNS_MOST = 1_000  # that backends reported for one commit
REPORTED = oot_workflow_job.c


async def job_of(
    tx: Transaction, repository_ids: Collection[int], job_id: int, attempt: int | None = None
) -> JobRow | None:
    """Return a job of one of some repositories, of the newest attempt unless one is named."""
    query = select(JobRow, utilization_job).where(
        J.repository_id.in_(sorted(repository_ids)), J.job_id == job_id
    )
    if attempt is not None:
        query = query.where(J.run_attempt == attempt)
    return await tx.fetch_first(query.order_by(J.run_attempt.desc()).limit(1))


async def lock_job(tx: Transaction, key: JobKey) -> JobRow | None:
    """Return the job of a key, locked until this transaction ends, as its place is where there is none."""
    if not tx.sqlite:
        text = "/".join(map(str, ("utilization", *key.values())))
        await tx.run(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(text))))
    return await tx.fetch_first(select(JobRow, utilization_job).where(*_is(key)))


async def put_job(tx: Transaction, row: JobRow) -> None:
    """Store a job, in place of what was known of it."""
    await tx.upsert(utilization_job, [row], replaced=list(row), index=KEY)
    tx.note_changed("utilization_job", [row])


async def delete_job(tx: Transaction, key: JobKey) -> None:
    """Delete a job."""
    await tx.run(sa.delete(utilization_job).where(*_is(key)))
    tx.note_changed("utilization_job", [key])


async def measured_runs(tx: Transaction, keys: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return those of some runs, by repository and id, that have a measured job."""
    found = await tx.run(_measured_runs(sqlite=tx.sqlite), {"wanted": tx.keys(keys)})
    return sorted({(row.repository_id, row.run_id) for row in found})


@functools.cache
def _measured_runs(*, sqlite: bool) -> Statement:
    """Return the query for runs by their keys: it runs before the commit of every job's event."""
    key = (J.repository_id, J.run_id)
    return Statement(sa.select(*key).where(among_given(key, "wanted", sqlite=sqlite)))


async def keys_of_run(tx: Transaction, repository_id: int, run_id: int) -> list[JobKey]:
    """Return the keys of a run's jobs."""
    query = select(JobKey, utilization_job).where(J.repository_id == repository_id, J.run_id == run_id)
    return await tx.fetch(query.order_by(J.job_id))


def _is(key: JobKey) -> list[sa.ColumnElement[bool]]:
    return [J[name] == value for name, value in key.items()]


async def jobs_of_run(tx: Transaction, repository_id: int, run_id: int, *, limit: int) -> list[JobSummary]:
    """Return the jobs of all attempts of a run."""
    query = select(JobSummary, utilization_job).where(J.repository_id == repository_id, J.run_id == run_id)
    return await tx.fetch(query.order_by(J.run_attempt.desc(), J.job_id).limit(limit))


async def jobs_of_head(
    tx: Transaction, repository_ids: Collection[int], sha: str, *, limit: int
) -> list[JobSummary]:
    """Return the jobs of a repository's own runs on a commit."""
    query = select(JobSummary, utilization_job).where(
        J.head_sha == sha, J.repository_id.in_(sorted(repository_ids))
    )
    return await tx.fetch(query.order_by(J.job_id).limit(limit))


async def jobs_of_runs(
    tx: Transaction, repos: Collection[str], keys: Sequence[tuple[int, int]], *, limit: int
) -> list[JobSummary]:
    """Return the jobs of some runs, by id and attempt, of repositories of these names in lower case."""
    if not keys:
        return []
    named = sa.func.lower(J.repo).in_(sorted(repos))
    query = select(JobSummary, utilization_job).where(tx.among((J.run_id, J.run_attempt), keys), named)
    return await tx.fetch(query.order_by(J.repo, J.job_id).limit(limit))


async def newest_jobs(tx: Transaction, repository_ids: Collection[int], *, limit: int) -> list[JobSummary]:
    """Return the jobs that were measured last."""
    query = select(JobSummary, utilization_job).where(
        J.repository_id.in_(sorted(repository_ids)), J.status == "ok"
    )
    return await tx.fetch(query.order_by(J.received_at.desc()).limit(limit))


async def reported_runs(tx: Transaction, repo: str, sha: str) -> list[tuple[str, str, int]]:
    """Return the runs that backends reported for a commit: repository, id and attempt of each."""
    query = (
        sa.select(REPORTED.downstream_repo, REPORTED.run_id, REPORTED.run_attempt)
        .where(sa.func.lower(REPORTED.upstream_repo) == repo.lower(), REPORTED.head_sha == sha)
        .distinct()
        .limit(RUNS_MOST)
    )
    return [(name, run_id, attempt) for name, run_id, attempt in await tx.run(query)]
