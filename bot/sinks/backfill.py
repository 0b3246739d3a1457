"""Tasks sinks and sink_withdraw: what is done about sinks beside sending.

sinks, every minute: notes new queues and backfills what there was before them, has waiting queues sent, forgets queues
that are no longer in the settings. sink_withdraw: has the copies of a repository deleted that turned private. Key: its
id.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from bot.core.errors import GiveUp
from bot.db.exports import encode_key
from bot.sinks import changes, current_rows, queue_rows
from bot.sinks.changes import SEND_TASK
from bot.sinks.queues import SINKS

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.context import Context
    from bot.db.store import Store
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task
    from bot.sinks.queues import ExportQueue

KEYS_AT_ONCE = 10_000  # keys marked in one transaction
KEYS_PER_STATEMENT = 1_000  # of them in one statement: SQLite's writer is not kept for longer
PAUSE_SECONDS = 0.05  # seconds between two pages, for other writers


async def backfill_queue(store: Store, lane: ExportQueue, report: Callable[[int], None] | None = None) -> int:
    """Mark what a lane's state says is to be marked, from where it stopped last; returns how many there were."""
    sink, what = lane.sink.name, lane.what
    total = 0
    while True:
        async with store.read() as tx:
            state = await queue_rows.read_state(tx, sink, what)
            if state is None or state["filled_from"] is None:
                return total
            page = await queue_rows.read_key_page(
                tx, lane.export, after=state["filled_after"], limit=KEYS_AT_ONCE, since=state["filled_from"]
            )
        await _note_page(store, lane, page)
        after = None if page.after is None else encode_key(page.after)
        async with store.transaction() as tx:
            await queue_rows.note_backfilled(tx, sink, what, after, len(page.times))
            tx.enqueue(SEND_TASK, lane.task_key)
        total += len(page.times)
        if report:
            report(total)
        await store.clock.sleep(PAUSE_SECONDS)


async def note_repository(store: Store, lane: ExportQueue, repository_id: int) -> int:
    """Mark all that an export has of a repository; returns how many keys."""
    after: str | None = None
    total = 0
    while True:
        async with store.read() as tx:
            page = await queue_rows.read_key_page(
                tx, lane.export, after=after, limit=KEYS_AT_ONCE, repository_id=repository_id
            )
        await _note_page(store, lane, page)
        total += len(page.times)
        if page.after is None:
            return total
        after = encode_key(page.after)
        await store.clock.sleep(PAUSE_SECONDS)


async def _note_page(store: Store, lane: ExportQueue, page: queue_rows.KeyPage) -> None:
    keys = list(page.times)
    for start in range(0, len(keys), KEYS_PER_STATEMENT):
        part = [
            (lane.sink.name, lane.what, encode_key(key)) for key in keys[start : start + KEYS_PER_STATEMENT]
        ]
        async with store.transaction() as tx:
            await changes.note_changes(tx, part)
        await asyncio.sleep(0)


log = structlog.get_logger("bot.sinks")


async def tend_sinks(context: Context, _task: Task) -> None:
    """Do what is to be done about sinks from time to time."""
    found = context.resource(SINKS).lanes
    async with context.store.transaction() as tx:
        await queue_rows.add_new_states(tx, found.values())
        stored, waiting = await queue_rows.read_states(tx), await changes.count_waiting(tx)
        for key, lane in found.items():
            if (lane.sink.name, lane.what) in waiting:
                tx.enqueue(SEND_TASK, key)
        await _forget_old_queues(
            tx, {(lane.sink.name, lane.what) for lane in found.values()}, {*stored, *waiting}
        )
    for lane in found.values():
        if await backfill_queue(context.store, lane):
            log.info("what there was before is marked", sink=lane.sink.name, what=lane.what)
    await _finish_withdrawals(context)


async def _forget_old_queues(
    tx: Transaction, known: set[tuple[str, str]], stored: set[tuple[str, str]]
) -> None:
    """Forget lanes that no longer exist: nothing would send what is marked for them."""
    for sink, what in sorted(stored - known):
        await changes.remove_changes(tx, sink, what)
        await queue_rows.remove_refused(tx, sink, what)
        await queue_rows.remove_state(tx, sink, what)


async def withdraw_repository(context: Context, task: Task) -> None:
    """Have what sinks have of a repository deleted, if it is private; only from those that get no private ones."""
    if not task.key.isdigit():
        raise GiveUp(f"{task.key!r} is not the id of a repository")
    identifier = int(task.key)
    found = context.resource(SINKS).lanes
    async with context.store.read() as tx:
        known = (await current_rows.read_known_repositories(tx, [identifier])).get(identifier)
        is_public = known is not None and known.is_public
        concerned = [] if is_public else await current_rows.sinks_with(tx, identifier)
    for sink in concerned:
        mine = [lane for lane in found.values() if lane.sink.name == sink and not lane.sink.private]
        for lane in mine:
            await note_repository(context.store, lane, identifier)
        async with context.store.transaction() as tx:
            await current_rows.withdraw_copies(tx, sink, identifier)
            for lane in mine:
                tx.enqueue(SEND_TASK, lane.task_key)
        log.warning(
            "a repository turned private: its copies are being deleted", sink=sink, repository=identifier
        )


async def _finish_withdrawals(context: Context) -> None:
    """Note where all copies that could be deleted were: those of rows that are stored here no longer are left."""
    async with context.store.transaction() as tx:
        for row in await current_rows.read_withdrawn(tx):
            at = row["withdrawn_at"]
            if not row["deleted"] and not await changes.has_changes(tx, row["sink"], until=at):
                await current_rows.note_deleted(tx, row["sink"], row["repository_id"])
