"""Typed rows of test results that many modules read, and requests for the tasks that compare jobs.

Times are epoch milliseconds.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec
import sqlalchemy as sa

from bot.db.rows import select
from bot.evidence.tests.tables import (
    EnvRow,
    JobKeyRow,
    KnownEnvRow,
    PartRow,
    TestJobRow,
    TestRow,
    test,
    test_class,
    test_env,
    test_job,
    test_part,
)
from bot.jobs import job_cells
from bot.oot.results.task_keys import request_publish

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bot.db.transaction import Changed, Transaction

DAY = 86_400_000  # milliseconds
GENERATIONS = 1 << 20  # a generation is when it was made, in milliseconds, times this, and something random
JOB = test_job.c
# GitHub, our dispatch or upstream's other CI says which commit a job tested, not only its uploader
PROVEN = sa.or_(JOB.run_id > 0, JOB.dispatch_id.is_not(None), JOB.run_id <= job_cells.LARGEST_NUMBER)
JOBS = select(TestJobRow, test_job)
TESTS = select(TestRow, test, test_class).select_from(
    test.join(test_class, test_class.c.id == test.c.class_id)
)
VERDICTS_SOON, VERDICTS_AT_LATEST = 10.0, 120.0  # seconds in which further results of the commit are awaited
LOSSES_TOGETHER, LOSSES_AT_LATEST = 120.0, 900.0  # seconds in which further jobs are awaited
RECENT = 14 * DAY  # milliseconds; comments that are older stay as they are
PULLS_MOST = 500  # pull requests of one commit or repository
QUERIED = 500  # repositories named in one statement: an installation may bring very many


def job_key(repository_id: int, run_id: int, run_attempt: int, job_id: int) -> JobKeyRow:
    """Return the key of a job: GitHub's ids, or negative numbers if it has none."""
    return {"repository_id": repository_id, "run_id": run_id, "run_attempt": run_attempt, "job_id": job_id}


def is_of_job(table: sa.Table, key: JobKeyRow) -> sa.ColumnElement[bool]:
    """Return the condition that a row of a table is of this job."""
    return sa.and_(*(table.c[name] == value for name, value in key.items()))


def tested_commit(job: TestJobRow) -> str:
    """Return the commit that a job tested."""
    return job["upstream_sha"] or job["head_sha"]


def is_proven(job: TestJobRow) -> bool:
    """Whether GitHub or our dispatch, not only the uploader, says which commit a job tested."""
    return job["run_id"] > 0 or job["dispatch_id"] is not None


def newest_attempts(jobs: Iterable[TestJobRow]) -> list[TestJobRow]:
    """Return the newest attempt of each job of a run.

    Nor those of a backend that was dispatched again for the pull request.
    """
    every = sorted(jobs, key=lambda job: (job["at"], job["generation"]))
    attempts: dict[tuple[int, int, str, str], int] = {}
    dispatches: dict[tuple[int, int], str] = {}
    for job in every:
        attempts[_of_run(job)] = max(attempts.get(_of_run(job), 0), job["run_attempt"])
        if job["dispatch_id"] and job["pr_number"]:
            dispatches[job["repository_id"], job["pr_number"]] = job["dispatch_id"]
    return [
        job
        for job in every
        if job["run_attempt"] == attempts[_of_run(job)]
        and dispatches.get((job["repository_id"], job["pr_number"] or 0), job["dispatch_id"])
        in {None, job["dispatch_id"]}
    ]


async def job_by_key(tx: Transaction, key: JobKeyRow) -> TestJobRow | None:
    """Return a job's results; None if no report was read."""
    return await tx.fetch_first(JOBS.where(is_of_job(test_job, key)))


async def jobs_of_run(
    tx: Transaction, repository_id: int, run_id: int, attempt: int | None = None
) -> list[TestJobRow]:
    """Return the jobs of a run, of all attempts or of one."""
    these = [JOB.repository_id == repository_id, JOB.run_id == run_id]
    if attempt is not None:
        these.append(JOB.run_attempt == attempt)
    query = JOBS.where(*these)
    return await tx.fetch(query.order_by(JOB.run_attempt, JOB.job_id))


async def jobs_by_generation(tx: Transaction, generations: Sequence[int]) -> list[TestJobRow]:
    """Return the jobs, by generation, whose results are the ones shown."""
    query = JOBS.where(JOB.generation.in_(generations))
    return await tx.fetch(query.order_by(JOB.generation))


async def jobs_on(tx: Transaction, repository_ids: Collection[int], sha: str) -> list[TestJobRow]:
    """Return the jobs of some repositories on one of their commits."""
    query = JOBS.where(JOB.repository_id.in_(sorted(repository_ids)), JOB.head_sha == sha)
    return await tx.fetch(query.order_by(JOB.run_id, JOB.run_attempt, JOB.job_id))


async def blocks_of_jobs(tx: Transaction, generations: Sequence[int]) -> dict[int, bytes]:
    """Return the blocks of jobs, by generation."""
    query = sa.select(JOB.generation, JOB.block).where(
        JOB.generation.in_(generations), JOB.block.is_not(None)
    )
    return {row.generation: row.block for row in await tx.run(query)}


async def parts_of_job(tx: Transaction, key: JobKeyRow) -> list[PartRow]:
    """Return the parts that a job's results are built from."""
    query = select(PartRow, test_part).where(is_of_job(test_part, key)).order_by(test_part.c.object_id)
    return await tx.fetch(query)


async def environments_by_id(tx: Transaction, ids: Collection[int]) -> dict[int, KnownEnvRow]:
    """Return environments by id."""
    query = select(KnownEnvRow, test_env).where(test_env.c.id.in_(sorted(set(ids))))
    return {row["id"]: row for row in await tx.fetch(query)}


async def environment_id(tx: Transaction, row: EnvRow) -> int:
    """Return the id of an environment; store it if it is new."""
    digest = hashlib.sha256(msgspec.json.encode(list(row.values()))).digest()[:16]
    await tx.run(tx.insert(test_env).values(**row, digest=digest).on_conflict_do_nothing())
    known = await tx.run(sa.select(test_env.c.id).where(test_env.c.digest == digest))
    return int(known.scalar_one())


def request_verdicts(tx: Transaction, shas: Iterable[str]) -> None:
    """Request new verdicts on the failing tests of commits."""
    for sha in shas:
        if sha:
            tx.enqueue("test_verdicts", sha, delay=VERDICTS_SOON, max_wait=VERDICTS_AT_LATEST)


def request_losses(tx: Transaction, repository_id: int, run_id: int) -> None:
    """Request the comparison of a run with the one before it; it is unknown when another CI's runs are complete."""
    if run_id > 0:
        tx.enqueue(
            "test_losses", f"{repository_id}/{run_id}", delay=LOSSES_TOGETHER, max_wait=LOSSES_AT_LATEST
        )


async def request_publish_of_commit(tx: Transaction, upstream_sha: str) -> None:
    """Publish the pull requests for which backends tested a commit; upstream's results change nothing there."""
    await _request_publish(tx, JOB.upstream_sha == upstream_sha)


async def note_private_repositories(tx: Transaction, changed: Changed) -> None:
    """Before a commit: republish comments with tests of repositories that have become private."""
    private = sorted({int(row["repository_id"]) for row in changed.get("repository", ()) if row["private"]})
    for start in range(0, len(private), QUERIED):
        recent = JOB.at >= tx.now - RECENT
        await _request_publish(tx, sa.and_(JOB.repository_id.in_(private[start : start + QUERIED]), recent))


def _of_run(job: TestJobRow) -> tuple[int, int, str, str]:
    return job["repository_id"], job["run_id"], job["workflow"], job["name"]


async def _request_publish(tx: Transaction, which: sa.ColumnElement[bool]) -> None:
    query = sa.select(JOB.upstream_repo, JOB.pr_number).where(
        which, JOB.backend.is_not(None), JOB.upstream_repo.is_not(None), JOB.pr_number.is_not(None)
    )
    for row in await tx.run(query.distinct().limit(PULLS_MOST)):
        request_publish(tx, row.upstream_repo, row.pr_number)
