"""prune: what is handled is compressed after an hour, what is past its retention is deleted, a batch at a time."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import structlog

from bot.domain.records import TYPES
from bot.store import archive, merge_groups, sweeps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from bot.context import Context
    from bot.store import Transaction
    from bot.store.queue import Task

log = structlog.get_logger("bot.tasks.prune")

T = TypeVar("T")
HOUR, DAY = 3_600_000, 86_400_000  # milliseconds
BATCH = 200  # rows changed in one transaction
BREATH = 0.02  # seconds between two batches: other writers' turn
TASKS_KEPT = 7 * DAY  # once they are done
GROUPS_KEPT = 30 * DAY  # commits of merge queues, also those whose end was never heard of


async def run(context: Context, _task: Task) -> None:
    """Compress and delete whatever is due."""
    await _compress(context)
    deleted = {
        "deliveries": await _deliveries(context),
        "tasks": await _tasks(context),
        "merge_groups": await _merge_groups(context),
    }
    async with context.store.transaction() as tx:
        last = await sweeps.begin(tx, 0, "records")
        due = (last["finished_at"] or 0) <= tx.now - DAY
    if due:  # once a day: to find old records every row is looked at
        deleted["records"] = await _records(context)
        async with context.store.transaction() as tx:
            await sweeps.finish(tx, 0, "records", reached=tx.now, found=deleted["records"])
    if any(deleted.values()):
        log.info("pruned", **deleted)


async def _compress(context: Context) -> None:
    """Compress what was received over an hour ago, going on where the last run came to."""
    before = context.clock.now() - HOUR
    async with context.store.transaction() as tx:
        reached = (await sweeps.begin(tx, 0, "archive"))["reached"] or 0
    while True:
        async with context.store.read() as tx:
            until = await archive.settled_until(tx, before)
            rows = await archive.plain(tx, since=reached, before=until, limit=BATCH)
        if not rows:
            break
        packed = await asyncio.to_thread(archive.compress, rows)
        reached = rows[-1]["received_at"]
        async with context.store.transaction() as tx:
            await archive.keep_compressed(tx, packed)
            await sweeps.finish(tx, 0, "archive", reached=reached)
        await context.clock.sleep(BREATH)
    async with context.store.transaction() as tx:  # what was looked at needs no second look
        await sweeps.finish(tx, 0, "archive", reached=max(reached, until))


async def _deliveries(context: Context) -> int:
    before = context.clock.now() - context.settings.raw_retention_days * DAY
    find = partial(archive.old_deliveries, before=before, limit=BATCH)
    return await _in_batches(context, find, archive.delete_deliveries)


async def _tasks(context: Context) -> int:
    find = partial(archive.old_tasks, before=context.clock.now() - TASKS_KEPT, limit=BATCH)
    return await _in_batches(context, find, archive.delete_tasks)


async def _merge_groups(context: Context) -> int:
    find = partial(merge_groups.old, before=context.clock.now() - GROUPS_KEPT, limit=BATCH)
    return await _in_batches(context, find, merge_groups.delete)


async def _records(context: Context) -> int:
    before = context.clock.now() - context.settings.record_retention_days * DAY
    deleted = 0
    for name in sorted(TYPES.keys() - archive.STANDING):
        find = partial(archive.old_records, name=name, before=before, limit=BATCH)
        deleted += await _in_batches(context, find, partial(archive.delete_records, name=name))
    return deleted


async def _in_batches(
    context: Context,
    find: Callable[[Transaction], Awaitable[Sequence[T]]],
    delete: Callable[[Transaction, Sequence[T]], Awaitable[None]],
) -> int:
    """Find and delete until nothing is found; returns how much it was."""
    deleted = 0
    while True:
        async with context.store.read() as tx:
            found = await find(tx)
        if not found:
            return deleted
        async with context.store.transaction() as tx:
            await delete(tx, found)
        deleted += len(found)
        await context.clock.sleep(BREATH)
