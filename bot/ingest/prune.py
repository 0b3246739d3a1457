"""Task prune: deletes what is past its retention, in batches."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

import sqlalchemy as sa
import structlog

from bot.core.feature import load_each
from bot.ingest import archive, sweeps
from bot.ingest.records import TYPES
from bot.ingest.watched import watched

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.ingest.prune")

T = TypeVar("T")
DAY = 86_400_000  # milliseconds
MEGABYTE = 1024 * 1024
BATCH = 200  # rows changed in one transaction
PAUSE = 0.02  # seconds between two batches: lets other writers in
TASKS_KEPT = 7 * DAY  # once they are done


async def prune_expired(context: Context, _task: Task) -> None:
    """Delete whatever is due."""
    deleted = {
        "deliveries": await _deliveries(context),
        "deliveries_of_others": await _others_deliveries(context),
        "tasks": await _tasks(context),
    }
    for prune in load_each(context.features, "prune"):
        deleted |= await prune(context)
    async with context.store.transaction() as tx:
        last = await sweeps.begin(tx, 0, "records")
        due = (last["finished_at"] or 0) <= tx.now - DAY
    if due:  # once a day: finding old records reads every row
        deleted["records"] = await _records(context)
        async with context.store.transaction() as tx:
            await sweeps.finish(tx, 0, "records", reached=tx.now, found=deleted["records"])
    if any(deleted.values()):
        log.info("pruned", **deleted)


async def _deliveries(context: Context) -> int:
    before = context.clock.now() - context.settings.raw_retention_days * DAY
    find = partial(archive.old_deliveries, before=before, limit=BATCH, retained=_retained(context))
    return await in_batches(context, find, archive.delete_deliveries)


async def _others_deliveries(context: Context) -> int:
    """Delete the oldest deliveries of accounts that are nothing to us: a public App may be sent any number."""
    most = context.settings.others_raw_mb * MEGABYTE
    async with context.store.read() as tx:
        accounts = (await watched(context, tx)).accounts
        up_to = await archive.over_quota(tx, accounts, most=most)
    if not up_to:
        return 0
    retained = _retained(context)
    find = partial(
        archive.deliveries_of_others, accounts=accounts, up_to=up_to, limit=BATCH, retained=retained
    )
    return await in_batches(context, find, archive.delete_deliveries)


async def _tasks(context: Context) -> int:
    find = partial(archive.old_tasks, before=context.clock.now() - TASKS_KEPT, limit=BATCH)
    return await in_batches(context, find, archive.delete_tasks)


async def _records(context: Context) -> int:
    before = context.clock.now() - context.settings.record_retention_days * DAY
    deleted, retained = 0, _retained(context)
    for name in sorted(TYPES.keys() - archive.KEPT_TYPES):
        find = partial(archive.old_records, name=name, before=before, limit=BATCH, retained=retained)
        deleted += await in_batches(context, find, partial(archive.delete_records, name=name))
    return deleted


def _retained(context: Context) -> list[archive.Retained]:
    return list(load_each(context.features, "retained"))


async def in_batches(
    context: Context,
    find: Callable[[Transaction], Awaitable[Sequence[T]]],
    delete: Callable[[Transaction, Sequence[T]], Awaitable[None]],
) -> int:
    """Find and delete until nothing is left; returns how many were deleted."""
    deleted = 0
    while True:
        async with context.store.read() as tx:
            found = await find(tx)
        if not found:
            return deleted
        async with context.store.transaction() as tx:
            await delete(tx, found)
        deleted += len(found)
        await context.clock.sleep(PAUSE)


async def delete_rows(context: Context, table: sa.Table, old: sa.ColumnElement[bool]) -> int:
    """Delete the rows of a table that are old, in batches, but for those that are no longer; returns how many."""
    keys = list(table.primary_key.columns)

    async def find(tx: Transaction) -> list[tuple[object, ...]]:
        return [tuple(row) for row in (await tx.run(sa.select(*keys).where(old).limit(BATCH))).all()]

    async def delete(tx: Transaction, found: Sequence[tuple[object, ...]]) -> None:
        await tx.run(sa.delete(table).where(tx.among(keys, found), old))

    return await in_batches(context, find, delete)
