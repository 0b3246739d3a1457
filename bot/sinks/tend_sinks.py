"""Tasks sinks and sink_withdraw: what is done about sinks beside sending.

sinks, every minute: notes new lanes and marks what there was before them, has waiting lanes sent, forgets lanes that
are no longer in the settings. sink_withdraw: has the copies of a repository deleted that turned private. Key: its id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.core.errors import GiveUp
from bot.sinks import fill_marks
from bot.sinks.marking import SEND
from bot.sinks.open_sinks import SINKS
from bot.sinks.store import marks, refused_rows, states, visibility_rows

if TYPE_CHECKING:
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

EVERY = 60.0  # seconds

log = structlog.get_logger("bot.sinks")


def periodic(_settings: Settings) -> dict[str, float]:
    """Return seconds between two runs, by task kind; also without sinks: what was marked for them is forgotten."""
    return {"sinks": EVERY}


async def tend_sinks(context: Context, _task: Task) -> None:
    """Do what is to be done about sinks from time to time."""
    found = context.resource(SINKS).lanes
    async with context.store.transaction() as tx:
        await states.add_new(tx, found.values())
        stored, waiting = await states.read_all(tx), await marks.count_waiting(tx)
        for key, lane in found.items():
            if (lane.sink.name, lane.what) in waiting:
                tx.enqueue(SEND, key)
        await _forget_others(
            tx, {(lane.sink.name, lane.what) for lane in found.values()}, {*stored, *waiting}
        )
    for lane in found.values():
        if await fill_marks.fill_lane(context.store, lane):
            log.info("what there was before is marked", sink=lane.sink.name, what=lane.what)
    await _finish_withdrawals(context)


async def _forget_others(tx: Transaction, known: set[tuple[str, str]], stored: set[tuple[str, str]]) -> None:
    """Forget lanes that no longer exist: nothing would send what is marked for them."""
    for sink, what in sorted(stored - known):
        await marks.remove_lane(tx, sink, what)
        await refused_rows.remove_lane(tx, sink, what)
        await states.remove(tx, sink, what)


async def withdraw_repository(context: Context, task: Task) -> None:
    """Have what sinks have of a repository deleted, if it is private; only from those that get no private ones."""
    if not task.key.isdigit():
        raise GiveUp(f"{task.key!r} is not the id of a repository")
    identifier = int(task.key)
    found = context.resource(SINKS).lanes
    async with context.store.read() as tx:
        known = (await visibility_rows.read_known(tx, [identifier])).get(identifier)
        is_public = known is not None and known.is_public
        concerned = [] if is_public else await visibility_rows.sinks_with(tx, identifier)
    for sink in concerned:
        mine = [lane for lane in found.values() if lane.sink.name == sink and not lane.sink.private]
        for lane in mine:
            await fill_marks.mark_repository(context.store, lane, identifier)
        async with context.store.transaction() as tx:
            await visibility_rows.withdraw(tx, sink, identifier)
            for lane in mine:
                tx.enqueue(SEND, lane.task_key)
        log.warning(
            "a repository turned private: its copies are being deleted", sink=sink, repository=identifier
        )


async def _finish_withdrawals(context: Context) -> None:
    """Note where all copies that could be deleted were: those of rows that are stored here no longer are left."""
    async with context.store.transaction() as tx:
        for row in await visibility_rows.withdrawn(tx):
            at = row["withdrawn_at"]
            if not row["deleted"] and not await marks.have_marks(tx, row["sink"], until=at):
                await visibility_rows.note_deleted(tx, row["sink"], row["repository_id"])
