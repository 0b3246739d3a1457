"""Statements on reruns of disabled tests, and the task test_reruns that counts them, a job at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.test_lists import reruns, rows
from bot.ci.test_lists.reruns import Case
from bot.ci.test_lists.tables import RerunRow, test_rerun, test_rerun_job
from bot.ci.test_results.disabled_here import platforms_of
from bot.ci.test_results.job_tables import test_job
from bot.ci.test_results.parse import block
from bot.ci.test_results.store import rows as result_rows
from bot.ci.test_results.store.exported_rows import read_runs
from bot.ci.test_results.store.rows import DAY
from bot.ci.test_results.tables import test_failure
from bot.db.rows import select
from bot.ingest.prune import delete_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.ci.test_results.job_tables import TestJobRow
    from bot.context import Context
    from bot.db.exports import Export, Key, Row
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

RECENT = 14 * DAY  # milliseconds
KEPT = 30 * DAY
JOBS_MOST = 200  # counted in one run
TESTS_MOST = 20_000  # of one job
BATCH = 500  # rows of one statement
MOST_READ = 50_000  # rows of a page
JOB, FAILURE, RERUN, COUNTED = test_job.c, test_failure.c, test_rerun.c, test_rerun_job.c


async def count_new_reruns(context: Context, _task: Task) -> None:
    """Count the reruns of jobs that are new."""
    async with context.store.read() as tx:
        jobs = await _uncounted(tx)
    for job in jobs:
        await _count(context, job)


async def _uncounted(tx: Transaction) -> list[TestJobRow]:
    counted = sa.exists().where(COUNTED.generation == JOB.generation)
    query = result_rows.JOBS.where(
        JOB.at > tx.now - RECENT, JOB.rerun_disabled, JOB.block.is_not(None), ~counted
    )
    return await tx.fetch(query.order_by(JOB.at).limit(JOBS_MOST))


async def _count(context: Context, job: TestJobRow) -> None:
    async with context.store.read() as tx:
        content = (await result_rows.blocks_of_jobs(tx, [job["generation"]])).get(job["generation"])
        messages = await _messages(tx, job["generation"])
        environments = await result_rows.environments_by_id(tx, [job["env_id"]])
    decoded = await asyncio.to_thread(block.decode, content) if content else None
    ids = sorted(set(decoded.ids))[:TESTS_MOST] if decoded else []
    async with context.store.read() as tx:
        places = await rows.places_of_tests(tx, ids)
    cases = (
        Case(places[test_id], block.outcome_of(code), messages.get(test_id, ""))
        for test_id, code in (zip(decoded.ids, decoded.codes, strict=True) if decoded else ())
        if test_id in places
    )
    found = await asyncio.to_thread(reruns.count_reruns, cases)
    common = {
        "generation": job["generation"],
        "repository_id": job["repository_id"],
        "trusted": job["trusted"],
        "platforms": sorted(platforms_of(job, environments.get(job["env_id"]))),
        "at": job["at"],
    }
    new = [
        common | place._asdict() | {"green": one.green, "red": one.red, "flaky": one.flaky}
        for place, one in sorted(found.items())
    ]
    async with context.store.transaction() as tx:
        for start in range(0, len(new), BATCH):
            await tx.run(tx.insert(test_rerun).on_conflict_do_nothing(), new[start : start + BATCH])
        done = tx.insert(test_rerun_job).values(generation=job["generation"], at=job["at"])
        await tx.run(done.on_conflict_do_nothing())
        tx.note_changed("test_job", [job])


async def _messages(tx: Transaction, generation: int) -> Mapping[int, str]:
    """Return what the skipped cases of a job say."""
    query = sa.select(FAILURE.test_id, FAILURE.message).where(
        FAILURE.generation == generation, FAILURE.outcome == block.Code.SKIPPED
    )
    return {row.test_id: row.message for row in await tx.run(query)}


async def reruns_since(tx: Transaction, repository_id: int, start: int) -> list[RerunRow]:
    """Return the reruns of trusted jobs since a time (epoch milliseconds); of a job, those read last."""
    shown = sa.exists().where(JOB.generation == RERUN.generation)
    query = select(RerunRow, test_rerun).where(
        RERUN.repository_id == repository_id, RERUN.at >= start, RERUN.trusted, shown
    )
    return await tx.fetch(query.order_by(RERUN.at.desc()).limit(MOST_READ))


async def read_reruns_of_runs(tx: Transaction, export: Export, keys: Sequence[Key]) -> dict[Key, Row]:
    """Return runs with the reruns that were counted in their jobs, for sinks; others have none."""
    found: dict[Key, Row] = {}
    for key, run in (await read_runs(tx, export, keys)).items():
        generations = sorted(job["generation"] for job in run["jobs"] if job["rerun_disabled"])
        query = select(RerunRow, test_rerun).where(RERUN.generation.in_(generations))
        reruns_of_run = await tx.fetch(query.order_by(RERUN.generation, RERUN.file, RERUN.suite, RERUN.name))
        if reruns_of_run:
            found[key] = {**run, "reruns": reruns_of_run}
    return found


async def prune_reruns(context: Context) -> dict[str, int]:
    """Delete old reruns."""
    before = context.clock.now() - KEPT
    await delete_rows(context, test_rerun_job, COUNTED.at < before)
    return {"reruns of disabled tests": await delete_rows(context, test_rerun, RERUN.at < before)}
