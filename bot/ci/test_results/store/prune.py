"""Deleting old results: what artifacts said after days, blocks and failures with the results, the rest with records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.collect.blobs import BLOBS
from bot.ci.collect.settings import CollectSettings
from bot.ci.collect.tables import ci_fetch
from bot.ci.test_results.job_tables import JOB_KEY, test_job
from bot.ci.test_results.store.rows import DAY, GENERATIONS
from bot.ci.test_results.tables import (
    test,
    test_class,
    test_day,
    test_exclusion,
    test_failure,
    test_loss,
    test_part,
    test_quota,
    test_state,
    test_summary,
)
from bot.ingest.prune import delete_rows, in_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction

PARTS_KEPT = 14  # days in which a job's artifacts may still come one by one
BATCH = 200
PART, JOB = test_part.c, test_job.c


async def prune(context: Context) -> dict[str, int]:
    """Delete what is past its retention."""
    now, settings = context.clock.now(), context.settings
    results = now - settings.of(CollectSettings).ci_result_retention_days * DAY
    records = now - settings.record_retention_days * DAY
    deleted = {
        "parts of test results": await _parts(context, now - PARTS_KEPT * DAY),
        "blocks of test results": await _blocks(context, results),
        "results of no job": 0,
    }
    for table in (test_failure, test_summary):
        deleted[f"rows of {table.name}"] = await delete_rows(context, table, table.c.at < results)
        deleted["results of no job"] += await delete_rows(context, table, _unnamed(table, now))
    for table, old in (
        (test_part, PART.received_at < records),
        (test_exclusion, test_exclusion.c.received_at < results),
        (test_job, JOB.at < records),
        (test_day, test_day.c.day < records // DAY),
        (test_state, test_state.c.at < records),
        (test_loss, test_loss.c.at < results),
        (test_quota, test_quota.c.day < now // DAY - 1),
        # blocks name tests by their ids: these go once no block can have them
        (test, sa.and_(test.c.last_at < results, test.c.trusted_last_at.is_(None))),
        (test, test.c.last_at < min(records, results)),
        (test_class, test_class.c.last_at < min(records, results)),
    ):
        deleted[f"rows of {table.name}"] = await delete_rows(context, table, old)
    return deleted


def _unnamed(table: sa.Table, now: int) -> sa.ColumnElement[bool]:
    """Return the condition for rows that a process which ended wrote for a job, and no job ever named."""
    named = sa.exists().where(JOB.generation == table.c.generation)
    since, until = ((now - days * DAY) * GENERATIONS for days in (3, 1))
    return sa.and_(table.c.generation.between(since, until), ~named)


async def _parts(context: Context, before: int) -> int:
    """Delete the blobs of parts; the jobs that were made of them stay as they are."""

    async def find(tx: Transaction) -> list[str]:
        old = sa.select(PART.blob).where(PART.received_at < before, PART.blob.is_not(None))
        return list((await tx.run(old.order_by(PART.received_at).limit(BATCH))).scalars())

    async def forget(tx: Transaction, blobs: Sequence[str]) -> None:
        for table in (test_part, ci_fetch):
            await tx.run(sa.update(table).where(table.c.blob.in_(blobs)).values(blob=None))
        for one in blobs:
            await context.resource(BLOBS).delete(one)

    return await in_batches(context, find, forget)


async def _blocks(context: Context, before: int) -> int:
    """Delete the blocks of jobs."""
    keys = [JOB[name] for name in JOB_KEY]

    async def find(tx: Transaction) -> list[tuple[int, ...]]:
        old = sa.select(*keys).where(
            JOB.at < before, sa.or_(JOB.block.is_not(None), JOB.counted_block.is_not(None))
        )
        return [tuple(row) for row in (await tx.run(old.order_by(JOB.at).limit(BATCH))).all()]  # fmt: skip

    async def forget(tx: Transaction, found: Sequence[tuple[int, ...]]) -> None:
        these = tx.among(keys, found)
        await tx.run(sa.update(test_job).where(these).values(block=None, counted_block=None))

    return await in_batches(context, find, forget)
