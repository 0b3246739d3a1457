"""Statements about the files that jobs tested: of a run, and of the newest trusted run of the same jobs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.extras.what_ran import file_counts
from bot.ci.extras.what_ran.file_counts import FileCount
from bot.ci.test_results.job_tables import BASELINE
from bot.ci.test_results.parse import block
from bot.ci.test_results.store import rows
from bot.ci.test_results.store.rows import JOB
from bot.ci.test_results.tables import test, test_class, test_summary

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.ci.test_results.job_tables import TestJobRow
    from bot.db.transaction import Transaction

CHUNK, RANGE = 500, 5_000  # values of one statement, and ids looked up at once
ROWS_MOST = 100_000
JOBS_MOST = 100  # of one run that says what is usual
T, C, SUMMARY = test.c, test_class.c, test_summary.c


async def counts_of_jobs(tx: Transaction, jobs: Sequence[TestJobRow]) -> dict[str, FileCount]:
    """Return the tests of some jobs by file: from sums where there are any, else from all of their cases."""
    summed, found = await _summed(tx, [job["generation"] for job in jobs])
    missing = [job["generation"] for job in jobs if job["generation"] not in found]
    parts = [summed]
    for content in (await rows.blocks_of_jobs(tx, missing)).values():
        decoded = await asyncio.to_thread(block.decode, content)
        files = await _files_of_tests(tx, decoded.ids)
        parts.append(await asyncio.to_thread(file_counts.count_block, decoded, files))
    return file_counts.add_up(one for part in parts for one in part.items())


async def usual_counts(tx: Transaction, job: TestJobRow) -> dict[str, FileCount]:
    """Return the tests of a job's family by file in the newest trusted run before it."""
    of_family = (BASELINE, JOB.repository_id == job["repository_id"], JOB.family == job["family"])
    newest = sa.select(JOB.run_id, JOB.run_attempt).where(
        *of_family, JOB.at < job["at"], JOB.run_id != job["run_id"]
    )
    run = (await tx.run(newest.order_by(JOB.at.desc()).limit(1))).one_or_none()
    if run is None:
        return {}
    same = (JOB.run_id == run.run_id, JOB.run_attempt == run.run_attempt)
    generations = (
        await tx.run(sa.select(JOB.generation).where(*of_family, *same).limit(JOBS_MOST))
    ).scalars()
    return (await _summed(tx, generations))[0]


async def _summed(tx: Transaction, generations: Sequence[int]) -> tuple[dict[str, FileCount], set[int]]:
    """Return the sums of jobs that have some, by file, and which jobs these are."""
    found, counts = set(), []
    for at in range(0, len(generations), CHUNK):
        query = (
            sa.select(
                SUMMARY.generation, SUMMARY.invoking_file, C.file, SUMMARY.tests, SUMMARY.successes,
                SUMMARY.skipped, SUMMARY.failures, SUMMARY.errors, SUMMARY.time_ms,
            )
            .select_from(test_summary.join(test_class, C.id == SUMMARY.class_id))
            .where(SUMMARY.generation.in_(generations[at : at + CHUNK]))
        )  # fmt: skip
        for generation, invoking, file, *numbers in await tx.run(query.limit(ROWS_MOST)):
            found.add(generation)
            counts.append((invoking or file, FileCount(*numbers)))
    return file_counts.add_up(counts), found


async def _files_of_tests(tx: Transaction, ids: Sequence[int]) -> dict[int, str]:
    """Return the files of some tests, whose ids are ascending and close to one another."""
    found: dict[int, str] = {}
    names: dict[int, str] = {}
    for at in range(0, len(ids), RANGE):
        some = ids[at : at + RANGE]
        query = sa.select(T.id, T.class_id).where(T.id.between(some[0], some[-1])).limit(ROWS_MOST)
        classes = dict((await tx.run(query)).all())
        names |= await _files(tx, {classes[one] for one in some if one in classes} - names.keys())
        found |= {one: names[classes[one]] for one in some if classes.get(one) in names}
    return found


async def _files(tx: Transaction, class_ids: Collection[int]) -> dict[int, str]:
    found: dict[int, str] = {}
    wanted = sorted(class_ids)
    for at in range(0, len(wanted), CHUNK):
        query = sa.select(C.id, C.file).where(C.id.in_(wanted[at : at + CHUNK]))
        found |= dict((await tx.run(query)).all())
    return found
