"""Rows of test results as types, and the statements that many share; times are epoch milliseconds."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import msgspec
import sqlalchemy as sa

from bot.ci.test_results.tables import JOB_KEY, test, test_class, test_env, test_job, test_part

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.db.transaction import Transaction

DAY = 86_400_000  # milliseconds
GENERATIONS = 1 << 20  # a generation is when it was made, in milliseconds, times this, and something random
JOB = test_job.c
PROVEN = (
    sa.or_(  # that it tested its commit is GitHub's word or our dispatch, not the word of whoever uploaded it
        JOB.run_id > 0, JOB.dispatch_id.is_not(None)
    )
)
LARGE = frozenset({"block", "counted_block", "flags", "properties"})  # columns that are read apart
WITHOUT_BLOCKS = [one for one in JOB if one.name not in LARGE]


class JobKey(NamedTuple):
    """What names a job: GitHub's ids, or numbers below 0 where it has none."""

    repository_id: int
    run_id: int
    run_attempt: int
    job_id: int


class TestJobRow(TypedDict):
    """What a job's reports said, without what is large."""

    repository_id: int
    run_id: int
    run_attempt: int
    job_id: int
    generation: int
    head_sha: str
    upstream_sha: str | None
    upstream_repo: str | None
    backend: str | None
    dispatch_id: str | None
    head_branch: str | None
    event: str | None
    trusted: bool
    pr_number: int | None
    env_id: int
    workflow: str
    name: str
    family: str
    base_name: str
    config: str
    shard: int | None
    shards: int | None
    rerun_disabled: bool
    tests: int
    passed: int
    failed: int
    errors: int
    skipped: int
    xfailed: int
    xpassed: int
    flaky: int
    crashed: int
    left_out: int
    time_ms: int
    files: int
    unreadable: list[dict[str, str]]
    at: int
    received_at: int
    counted: int


class PartRow(TypedDict):
    """An artifact or upload that a job's results are made of."""

    repository_id: int
    run_id: int
    run_attempt: int
    job_id: int
    object_id: int
    kind: str
    name: str
    blob: str | None
    unreadable: list[dict[str, str]]
    received_at: int


class SummaryRow(TypedDict):
    """What a job said of a suite."""

    generation: int
    class_id: int
    invoking_file: str
    at: int
    tests: int
    failures: int
    errors: int
    skipped: int
    successes: int
    flaky: int
    time_ms: int


class FailureRow(TypedDict):
    """A case of a job that failed, or was flaky."""

    generation: int
    test_id: int
    invoking_file: str
    outcome: int
    flaky: bool
    attempts: int
    failed_attempts: int
    time_ms: int | None
    type: str
    message: str
    stack: str
    output: str
    source_file: str | None
    line: int | None
    signature: str | None
    verdict: str | None
    evidence: Any
    properties: dict[str, str] | None
    repository_id: int
    head_sha: str
    trusted: bool
    at: int


class EnvRow(TypedDict):
    """Where tests ran; empty where that is not known."""

    os: str
    arch: str
    accelerator: str
    accelerator_version: str
    device_name: str
    device_count: int
    python: str
    build: str
    config: str
    env_group: str


class TestRow(TypedDict):
    """A test, with the file and suite it stands in."""

    id: int
    repository_id: int
    class_id: int
    digest: bytes
    canonical: int
    file: str
    suite: str
    name: str
    declared_name: str | None
    first_at: int
    last_at: int
    trusted_first_at: int | None
    trusted_last_at: int | None


def is_of_job(table: sa.Table, key: JobKey) -> sa.ColumnElement[bool]:
    """Return the condition that a row of a table is of this job."""
    return sa.and_(*(table.c[name] == value for name, value in zip(JOB_KEY, key, strict=True)))


def tested(job: TestJobRow) -> str:
    """Return the commit that a job tested."""
    return job["upstream_sha"] or job["head_sha"]


def is_proven(job: TestJobRow) -> bool:
    """Whether GitHub or our dispatch says which commit a job tested; else whoever uploaded its results does."""
    return job["run_id"] > 0 or job["dispatch_id"] is not None


async def job(tx: Transaction, key: JobKey) -> TestJobRow | None:
    """Return what a job's reports said, None where none were read."""
    return await tx.row_as(TestJobRow, sa.select(*WITHOUT_BLOCKS).where(is_of_job(test_job, key)))


async def jobs_of_run(
    tx: Transaction, repository_id: int, run_id: int, attempt: int | None = None
) -> list[TestJobRow]:
    """Return the jobs of a run, of all its attempts unless one is named."""
    these = [JOB.repository_id == repository_id, JOB.run_id == run_id]
    if attempt is not None:
        these.append(JOB.run_attempt == attempt)
    query = sa.select(*WITHOUT_BLOCKS).where(*these)
    return await tx.rows_as(TestJobRow, query.order_by(JOB.run_attempt, JOB.job_id))


async def jobs_by_generation(tx: Transaction, generations: Sequence[int]) -> list[TestJobRow]:
    """Return those of some jobs whose results are the ones shown."""
    query = sa.select(*WITHOUT_BLOCKS).where(JOB.generation.in_(generations))
    return await tx.rows_as(TestJobRow, query.order_by(JOB.generation))


async def jobs_on(tx: Transaction, repository_ids: Collection[int], sha: str) -> list[TestJobRow]:
    """Return the jobs of some repositories on one of their commits."""
    query = sa.select(*WITHOUT_BLOCKS).where(
        JOB.repository_id.in_(sorted(repository_ids)), JOB.head_sha == sha
    )
    return await tx.rows_as(TestJobRow, query.order_by(JOB.run_id, JOB.run_attempt, JOB.job_id))


async def blocks(tx: Transaction, generations: Sequence[int]) -> dict[int, bytes]:
    """Return the blocks of some jobs, by generation."""
    query = sa.select(JOB.generation, JOB.block).where(
        JOB.generation.in_(generations), JOB.block.is_not(None)
    )
    return {row.generation: row.block for row in await tx.run(query)}


async def parts(tx: Transaction, key: JobKey) -> list[PartRow]:
    """Return what a job's results are made of."""
    query = sa.select(test_part).where(is_of_job(test_part, key)).order_by(test_part.c.object_id)
    return await tx.rows_as(PartRow, query)


def tests() -> sa.Select[Any]:
    """Return a query of `TestRow`; the caller adds which."""
    columns = (
        test.c.id, test.c.repository_id, test.c.class_id, test.c.digest, test.c.canonical, test_class.c.file,
        test_class.c.suite, test.c.name, test.c.declared_name, test.c.first_at, test.c.last_at,
        test.c.trusted_first_at, test.c.trusted_last_at,
    )  # fmt: skip
    return sa.select(*columns).select_from(test.join(test_class, test_class.c.id == test.c.class_id))


async def environments(tx: Transaction, ids: Collection[int]) -> dict[int, EnvRow]:
    """Return some environments by id."""
    columns = [one for one in test_env.c if one.name != "digest"]
    query = sa.select(*columns).where(test_env.c.id.in_(sorted(set(ids))))
    return {row.pop("id"): row for row in await tx.rows(query)}  # type: ignore[misc]


async def environment_id(tx: Transaction, row: EnvRow) -> int:
    """Return the id of an environment, stored if it is new."""
    digest = hashlib.sha256(msgspec.json.encode(list(row.values()))).digest()[:16]
    await tx.run(tx.insert(test_env).values(**row, digest=digest).on_conflict_do_nothing())
    found = await tx.run(sa.select(test_env.c.id).where(test_env.c.digest == digest))
    return int(found.scalar_one())
