"""test_days: keeps the daily sums of a repository's tests. Key: its id.

A job's row says which of its generations the sums hold, on which day and for which group of environments; that is
written with the sums, so a job that is made again, or is no longer trusted, counts once and no more.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.test_results import day_counts
from bot.ci.test_results.job_tables import (
    BASELINE,
    UNCOUNTED,
    JobBlock,
    JobCounted,
    JobGeneration,
    JobTimes,
    test_job,
)
from bot.ci.test_results.store.known_tests import PAUSE
from bot.ci.test_results.store.rows import DAY
from bot.ci.test_results.tables import test_day, test_env
from bot.core.errors import GiveUp
from bot.db.rows import select

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.ci.test_results.day_counts import Changes, Counts
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

TASK = "test_days"
TOGETHER = 60.0  # seconds in which further jobs are awaited
AT_LATEST = 600.0
JOBS = 10  # counted in one transaction
PAGES_READ = 2_000  # rows of one question
JOB, DAYS = test_job.c, test_day.c


class _JobRow(JobGeneration, JobTimes, JobCounted, JobBlock):
    counts: bool  # whether the sums are to hold it
    env_group: str


def request(tx: Transaction, repository_id: int) -> None:
    """Have the daily sums of a repository brought up to date."""
    tx.enqueue(TASK, str(repository_id), delay=TOGETHER, max_wait=AT_LATEST)


async def count_days(context: Context, task: Task) -> None:
    """Count what is not counted yet."""
    if not task.key.lstrip("-").isdigit():
        raise GiveUp(f"{task.key!r} is not the id of a repository")
    while await _count(context, int(task.key)):
        await context.clock.sleep(PAUSE)


async def _count(context: Context, repository_id: int) -> bool:
    """Count a few jobs; returns whether there were any."""
    async with context.store.read() as tx:
        jobs = await _uncounted(tx, repository_id)
    if not jobs:
        return False
    by_day = await asyncio.to_thread(_changes, jobs)
    async with context.store.read() as tx:
        pages = [(page, day) for day, changes in by_day.items() for page in changes]
        stored = await _stored(tx, repository_id, pages)
    rows = await asyncio.to_thread(_rows, by_day, stored)
    async with context.store.transaction() as tx:
        if [_identity(job) for job in await _uncounted(tx, repository_id)] != [
            _identity(job) for job in jobs
        ]:
            return True  # made again in between
        await _store(tx, repository_id, rows)
        for job in jobs:
            marks = {
                "counted": job["generation"] if job["counts"] else 0,
                "counted_day": job["at"] // DAY if job["counts"] else None,
                "counted_group": job["env_group"] if job["counts"] else None,
                "counted_block": None,
            }
            await tx.run(sa.update(test_job).where(JOB.generation == job["generation"]).values(marks))
    return True


async def _uncounted(tx: Transaction, repository_id: int) -> list[_JobRow]:
    query = (
        select(_JobRow, test_job, test_env, counts=sa.case((BASELINE, sa.true()), else_=sa.false()))
        .select_from(test_job.join(test_env, test_env.c.id == JOB.env_id))
        .where(JOB.repository_id == repository_id, UNCOUNTED)
        .order_by(JOB.at, JOB.generation)
    )
    return await tx.fetch(query.limit(JOBS))


def _identity(job: _JobRow) -> tuple[int, int, bool]:
    return job["generation"], job["counted"], bool(job["counts"])


def _changes(jobs: Sequence[_JobRow]) -> dict[int, Changes]:
    """Return by day what counting these jobs adds to the sums."""
    found: dict[int, Changes] = {}
    for job in jobs:
        if job["counted"]:
            former = job["block"] if job["counted"] == job["generation"] else job["counted_block"]
            changes = found.setdefault(job["counted_day"] or 0, day_counts.no_changes())
            day_counts.add(changes, former, job["counted_group"] or "", -1)
        if job["counts"]:
            changes = found.setdefault(job["at"] // DAY, day_counts.no_changes())
            day_counts.add(changes, job["block"], job["env_group"], 1)
    return found


def _rows(
    by_day: dict[int, Changes], stored: dict[tuple[int, int], bytes]
) -> list[tuple[int, int, bytes | None]]:
    return [
        (page, day, day_counts.changed(stored.get((page, day)), groups))
        for day, changes in by_day.items()
        for page, groups in changes.items()
    ]


async def _stored(
    tx: Transaction, repository_id: int, pages: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], bytes]:
    query = sa.select(DAYS.page, DAYS.day, DAYS.counts).where(
        DAYS.repository_id == repository_id, tx.among((DAYS.page, DAYS.day), pages)
    )
    return {(row.page, row.day): row.counts for row in await tx.run(query)}


async def _store(tx: Transaction, repository_id: int, rows: Sequence[tuple[int, int, bytes | None]]) -> None:
    kept = [
        {"repository_id": repository_id, "page": page, "day": day, "counts": counts}
        for page, day, counts in rows
        if counts is not None
    ]
    if kept:
        await tx.upsert(test_day, kept, replaced=("counts",))
    if empty := [(page, day) for page, day, counts in rows if counts is None]:
        mine = DAYS.repository_id == repository_id
        await tx.run(sa.delete(test_day).where(mine, tx.among((DAYS.page, DAYS.day), empty)))


async def days_of_tests(
    tx: Transaction, repository_id: int, test_ids: Collection[int], *, since: int, until: int
) -> dict[int, dict[int, dict[str, Counts]]]:
    """Return what trusted runs of some days, both included, said of tests: test -> day -> group -> counts."""
    by_page: dict[int, list[int]] = {}
    for one in test_ids:
        by_page.setdefault(day_counts.page_of(one), []).append(one)
    query = sa.select(DAYS.page, DAYS.day, DAYS.counts).where(
        DAYS.repository_id == repository_id, DAYS.page.in_(sorted(by_page)), DAYS.day.between(since, until)
    )
    stored = [tuple(row) for row in (await tx.run(query.order_by(DAYS.day).limit(PAGES_READ))).all()]
    return await asyncio.to_thread(_history, stored, by_page)


def _history(
    stored: Sequence[tuple[int, int, bytes]], by_page: dict[int, list[int]]
) -> dict[int, dict[int, dict[str, Counts]]]:
    found: dict[int, dict[int, dict[str, Counts]]] = {}
    for page, day, counts in stored:
        for test_id, group, one in day_counts.counts_of_tests(counts, by_page[page]):
            found.setdefault(test_id, {}).setdefault(day, {})[group] = one
    return found
