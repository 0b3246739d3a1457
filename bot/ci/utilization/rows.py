"""Rows of jobs whose machine was watched."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypedDict

import sqlalchemy as sa

from bot.ci.utilization.tables import utilization_job
from bot.db.statements import Statement
from bot.db.transaction import among_given

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.db.transaction import Transaction

J = utilization_job.c
KEY = ("repository_id", "run_id", "run_attempt", "job_id")


class Peak(TypedDict):
    """The record with the most memory in use."""

    at: int  # seconds
    percent: float
    commands: list[str]


class JobSummary(TypedDict):
    """A job, without what only its own page needs."""

    repository_id: int
    run_id: int
    run_attempt: int
    job_id: int
    repo: str
    workflow_name: str
    job_name: str
    base_name: str
    config: str
    runner_label: str
    head_sha: str
    head_branch: str
    trusted: bool
    status: str
    reason: str
    flags: list[str]
    gpu_count: int | None
    cpu_count: int | None
    gpu_type: str | None
    start_at: int
    end_at: int
    records: int
    error_records: int
    cpu_avg: float | None
    cpu_p90: float | None
    cpu_max: float | None
    mem_avg: float | None
    mem_p90: float | None
    mem_max: float | None
    gpu_avg: float | None
    gpu_p90: float | None
    gpu_max: float | None
    gpu_bw_avg: float | None
    gpu_bw_p90: float | None
    gpu_bw_max: float | None
    gpu_alloc_avg: float | None
    gpu_alloc_p90: float | None
    gpu_alloc_max: float | None
    observed_s: float
    idle_gpu_s: float
    gpu_s: float
    no_data_s: float
    saturated_s: float
    oom_risk: bool
    peak: Peak | None
    blob: str | None


class JobRow(JobSummary):
    """A job."""

    source_id: int
    digest: str
    collect_interval: float | None
    model_version: str | None
    segments: list[tuple[str, int, int]]
    histograms: bytes
    totals: list[int]
    machine_s: int
    day: int
    received_at: int


SUMMARY = [J[name] for name in JobSummary.__annotations__]


async def job(
    tx: Transaction, repository_ids: Collection[int], job_id: int, attempt: int | None = None
) -> JobRow | None:
    """Return a job of one of some repositories, of the newest attempt unless one is named."""
    query = sa.select(utilization_job).where(J.repository_id.in_(sorted(repository_ids)), J.job_id == job_id)
    if attempt is not None:
        query = query.where(J.run_attempt == attempt)
    return await tx.row_as(JobRow, query.order_by(J.run_attempt.desc()).limit(1))


async def held(tx: Transaction, key: Sequence[int]) -> JobRow | None:
    """Return the job of a key, which nobody else changes before this transaction ends."""
    if not tx.sqlite:
        text = "/".join(map(str, ("utilization", *key)))
        await tx.run(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(text))))
    return await tx.row_as(JobRow, sa.select(utilization_job).where(*_is(key)))


async def put(tx: Transaction, row: JobRow) -> None:
    """Store a job, in place of what was known of it."""
    await tx.upsert(utilization_job, [row], replaced=list(row), index=KEY)


async def delete(tx: Transaction, key: Sequence[int]) -> None:
    """Delete a job."""
    await tx.run(sa.delete(utilization_job).where(*_is(key)))


async def measured_runs(tx: Transaction, keys: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return those of some runs, by repository and id, that have a measured job."""
    found = await tx.run(_measured_runs(sqlite=tx.sqlite), {"wanted": tx.keys(keys)})
    return sorted({(row.repository_id, row.run_id) for row in found})


@functools.cache
def _measured_runs(*, sqlite: bool) -> Statement:
    """Return the query for runs by their keys: it runs before the commit of every job's event."""
    key = (J.repository_id, J.run_id)
    return Statement(sa.select(*key).where(among_given(key, "wanted", sqlite=sqlite)))


async def keys_of_run(tx: Transaction, repository_id: int, run_id: int) -> list[tuple[int, ...]]:
    """Return the keys of a run's jobs."""
    query = sa.select(*(J[name] for name in KEY)).where(J.repository_id == repository_id, J.run_id == run_id)
    return [tuple(row) for row in (await tx.run(query.order_by(J.job_id))).all()]


def _is(key: Sequence[int]) -> list[sa.ColumnElement[bool]]:
    return [J[name] == value for name, value in zip(KEY, key, strict=True)]


async def of_run(tx: Transaction, repository_id: int, run_id: int, *, limit: int) -> list[JobSummary]:
    """Return the jobs of all attempts of a run."""
    query = sa.select(*SUMMARY).where(J.repository_id == repository_id, J.run_id == run_id)
    return await tx.rows_as(JobSummary, query.order_by(J.run_attempt.desc(), J.job_id).limit(limit))


async def of_head(
    tx: Transaction, repository_ids: Collection[int], sha: str, *, limit: int
) -> list[JobSummary]:
    """Return the jobs of a repository's own runs on a commit."""
    query = sa.select(*SUMMARY).where(J.head_sha == sha, J.repository_id.in_(sorted(repository_ids)))
    return await tx.rows_as(JobSummary, query.order_by(J.job_id).limit(limit))


async def of_runs(
    tx: Transaction, repos: Collection[str], keys: Sequence[tuple[int, int]], *, limit: int
) -> list[JobSummary]:
    """Return the jobs of some runs, by id and attempt, of repositories of these names in lower case."""
    if not keys:
        return []
    named = sa.func.lower(J.repo).in_(sorted(repos))
    query = sa.select(*SUMMARY).where(tx.among((J.run_id, J.run_attempt), keys), named)
    return await tx.rows_as(JobSummary, query.order_by(J.repo, J.job_id).limit(limit))


async def newest(tx: Transaction, repository_ids: Collection[int], *, limit: int) -> list[JobSummary]:
    """Return the jobs that were measured last."""
    query = sa.select(*SUMMARY).where(J.repository_id.in_(sorted(repository_ids)), J.status == "ok")
    return await tx.rows_as(JobSummary, query.order_by(J.received_at.desc()).limit(limit))
