"""Statements on how long tests take."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import msgspec
import sqlalchemy as sa

from bot.ci.test_lists.reruns import Place
from bot.ci.test_lists.tables import PackedTimes, TimeRow, test_time, test_time_source
from bot.ci.test_lists.times import Seconds
from bot.ci.test_results.job_tables import BASELINE, TestJobRow, test_job
from bot.ci.test_results.store import rows as result_rows
from bot.ci.test_results.store.rows import DAY
from bot.ci.test_results.tables import test, test_class, test_summary
from bot.db.rows import select
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.db.transaction import Transaction

BATCH = 200  # jobs or tests of one statement
RECENT = 30 * DAY  # milliseconds
JOBS_MOST = 5_000  # looked at, the newest first
JOB, ANY_JOB = test_job.c, records["workflow_job"].c
TIME, SOURCE = test_time.c, test_time_source.c
SUMMARY, CLASS = test_summary.c, test_class.c
# what a job spent on a suite: generation, the file that launched it or "", its file, its name, milliseconds
SuiteTime = tuple[int, str, str, str, int]


def pack_times(seconds: Seconds) -> bytes:
    """Return times as they are stored."""
    return zlib.compress(msgspec.json.encode(seconds), 6)


def unpack_times(content: bytes) -> Seconds:
    """Return stored times."""
    found: Seconds = msgspec.json.decode(zlib.decompress(content), type=Seconds)
    return found


async def suites_of_jobs(tx: Transaction, generations: Sequence[int]) -> list[SuiteTime]:
    """Return what some jobs spent on their suites."""
    found: list[SuiteTime] = []
    columns = (SUMMARY.generation, SUMMARY.invoking_file, CLASS.file, CLASS.suite, SUMMARY.time_ms)
    query = sa.select(*columns).join_from(test_summary, test_class, CLASS.id == SUMMARY.class_id)
    for start in range(0, len(generations), BATCH):
        some = query.where(SUMMARY.generation.in_(generations[start : start + BATCH]))
        found += [tuple(row) for row in await tx.run(some)]
    return found


async def places_of_tests(tx: Transaction, ids: Collection[int]) -> dict[int, Place]:
    """Return the names of some tests."""
    found: dict[int, Place] = {}
    ordered = sorted(ids)
    query = sa.select(test.c.id, test.c.name, CLASS.suite, CLASS.file).join_from(
        test, test_class, CLASS.id == test.c.class_id
    )
    for start in range(0, len(ordered), BATCH):
        some = query.where(test.c.id.in_(ordered[start : start + BATCH]))
        found |= {row.id: Place(row.name, row.suite, row.file) for row in await tx.run(some)}
    return found


async def with_results(tx: Transaction, repository_ids: Collection[int]) -> list[int]:
    """Return which of some repositories have results of tests."""
    found = []
    for one in sorted(repository_ids):
        query = sa.select(test_job.c.run_id).where(test_job.c.repository_id == one).limit(1)
        if await tx.row(query) is not None:
            found.append(one)
    return found


async def find_source(tx: Transaction, repository_id: int) -> str | None:
    """Return the digest of the jobs that the lists of a repository were made of."""
    query = sa.select(SOURCE.digest).where(SOURCE.repository_id == repository_id)
    found: str | None = (await tx.run(query)).scalar()
    return found


async def store_source(tx: Transaction, repository_id: int, digest: str) -> None:
    """Store what the lists of a repository were made of."""
    new = {"digest": digest, "at": tx.now}
    insert = tx.insert(test_time_source).values(repository_id=repository_id, **new)
    await tx.run(insert.on_conflict_do_update(index_elements=["repository_id"], set_=new))


async def stored_times(tx: Transaction, repository_id: int) -> dict[tuple[str, str], PackedTimes]:
    """Return the times of a repository by base name and configuration."""
    query = select(TimeRow, test_time).where(TIME.repository_id == repository_id)
    return {
        (row["base_name"], row["config"]): PackedTimes(
            files=row["files"], classes=row["classes"], at=row["at"]
        )
        for row in await tx.fetch(query)
    }


async def replace_times(
    tx: Transaction, repository_id: int, kept: Mapping[tuple[str, str], PackedTimes]
) -> None:
    """Store all times of a repository in place of those before."""
    await tx.run(sa.delete(test_time).where(TIME.repository_id == repository_id))
    new = [
        {"repository_id": repository_id, "base_name": base_name, "config": config, **one}
        for (base_name, config), one in sorted(kept.items())
    ]
    for start in range(0, len(new), BATCH):
        await tx.run(sa.insert(test_time), new[start : start + BATCH])


async def jobs_with_results(tx: Transaction, repository_id: int) -> list[TestJobRow]:
    """Return the jobs of the last month whose results feed lists, the newest first."""
    query = result_rows.JOBS.where(
        BASELINE, JOB.repository_id == repository_id, JOB.at > tx.now - RECENT, JOB.block.is_not(None)
    )
    order = (JOB.at.desc(), JOB.generation.desc())
    return await tx.fetch(query.order_by(*order).limit(JOBS_MOST))


async def count_ended(
    tx: Transaction, repository_id: int, *, run_ids: Collection[int] = (), heads: Collection[str] = ()
) -> tuple[int, int]:
    """Return how many jobs some runs have, or some commits where no runs are given, and how many have ended."""
    same = ANY_JOB.run_id.in_(sorted(run_ids)) if run_ids else ANY_JOB.head_sha.in_(sorted(heads))
    done = sa.func.sum(sa.case((ANY_JOB.status == "completed", 1), else_=0))
    query = sa.select(sa.func.count(), done).where(same, ANY_JOB.repository_id == repository_id)
    count, ended = (await tx.run(query)).one()
    return int(count), int(ended or 0)
