"""Tasks sinks and sink_withdraw: what sinks need beside sending.

sinks, every minute: adds new queues and backfills older rows, starts waiting queues, forgets queues that are no longer
in the settings. sink_withdraw: deletes the copies of a repository that turned private. Key: its id.
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
log = structlog.get_logger("bot.sinks")


async def backfill_queue(
    store: Store, queue: ExportQueue, report: Callable[[int], None] | None = None
) -> int:
    """Queue the rows that a backfill still lacks, from where it stopped last; returns how many."""
    sink, what = queue.sink.name, queue.what
    total = 0
    while True:
        async with store.read() as tx:
            state = await queue_rows.read_state(tx, sink, what)
            if state is None or state["filled_from"] is None:
                return total
            page = await queue_rows.read_key_page(
                tx, queue.export, after=state["filled_after"], limit=KEYS_AT_ONCE, since=state["filled_from"]
            )
        await _note_page(store, queue, page)
        after = None if page.after is None else encode_key(page.after)
        async with store.transaction() as tx:
            await queue_rows.note_backfilled(tx, sink, what, after, len(page.times))
            tx.enqueue(SEND_TASK, queue.task_key)
        total += len(page.times)
        if report:
            report(total)
        await store.clock.sleep(PAUSE_SECONDS)


async def note_repository(store: Store, queue: ExportQueue, repository_id: int) -> int:
    """Queue all rows that an export has of a repository; returns how many."""
    after: str | None = None
    total = 0
    while True:
        async with store.read() as tx:
            page = await queue_rows.read_key_page(
                tx, queue.export, after=after, limit=KEYS_AT_ONCE, repository_id=repository_id
            )
        await _note_page(store, queue, page)
        total += len(page.times)
        if page.after is None:
            return total
        after = encode_key(page.after)
        await store.clock.sleep(PAUSE_SECONDS)


async def tend_sinks(context: Context, _task: Task) -> None:
    """Add, backfill, start and forget queues."""
    queues = context.resource(SINKS).queues
    async with context.store.transaction() as tx:
        await queue_rows.add_new_states(tx, queues.values())
        stored, waiting = await queue_rows.read_states(tx), await changes.count_waiting(tx)
        for key, queue in queues.items():
            if (queue.sink.name, queue.what) in waiting:
                tx.enqueue(SEND_TASK, key)
        await _forget_old_queues(
            tx, {(queue.sink.name, queue.what) for queue in queues.values()}, {*stored, *waiting}
        )
    for queue in queues.values():
        if await backfill_queue(context.store, queue):
            log.info("what there was before is marked", sink=queue.sink.name, what=queue.what)
    await _finish_withdrawals(context)


async def withdraw_repository(context: Context, task: Task) -> None:
    """Delete the copies of a private repository in sinks that may not have private ones."""
    if not task.key.isdigit():
        raise GiveUp(f"{task.key!r} is not the id of a repository")
    identifier = int(task.key)
    queues = context.resource(SINKS).queues
    async with context.store.read() as tx:
        known = (await current_rows.read_known_repositories(tx, [identifier])).get(identifier)
        is_public = known is not None and known.is_public
        concerned = [] if is_public else await current_rows.sinks_with(tx, identifier)
    for sink in concerned:
        mine = [queue for queue in queues.values() if queue.sink.name == sink and not queue.sink.private]
        for queue in mine:
            await note_repository(context.store, queue, identifier)
        async with context.store.transaction() as tx:
            await current_rows.withdraw_copies(tx, sink, identifier)
            for queue in mine:
                tx.enqueue(SEND_TASK, queue.task_key)
        log.warning(
            "a repository turned private: its copies are being deleted", sink=sink, repository=identifier
        )


async def _note_page(store: Store, queue: ExportQueue, page: queue_rows.KeyPage) -> None:
    keys = list(page.times)
    for start in range(0, len(keys), KEYS_PER_STATEMENT):
        part = [
            (queue.sink.name, queue.what, encode_key(key)) for key in keys[start : start + KEYS_PER_STATEMENT]
        ]
        async with store.transaction() as tx:
            await changes.note_changes(tx, part)
        await asyncio.sleep(0)


async def _forget_old_queues(
    tx: Transaction, known: set[tuple[str, str]], stored: set[tuple[str, str]]
) -> None:
    """Forget queues that no longer exist: nothing would send their changes."""
    for sink, what in sorted(stored - known):
        await changes.remove_changes(tx, sink, what)
        await queue_rows.remove_refused(tx, sink, what)
        await queue_rows.remove_state(tx, sink, what)


async def _finish_withdrawals(context: Context) -> None:
    """Note which withdrawals are done: copies of rows that we no longer store stay behind."""
    async with context.store.transaction() as tx:
        for row in await current_rows.read_withdrawn(tx):
            at = row["withdrawn_at"]
            if not row["deleted"] and not await changes.has_changes(tx, row["sink"], until=at):
                await current_rows.note_deleted(tx, row["sink"], row["repository_id"])
