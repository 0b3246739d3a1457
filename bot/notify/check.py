"""The periodic task `notices`: compares what holds now with what people were told, and has them told. Key: nothing.

What begins and what is over is stored with the notices about it and with what each receiver is to get, in one
transaction: after a crash it is either told already, or found again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.core.conditions import EVENTS, Scope
from bot.core.feature import load_each
from bot.notify import notices, rows
from bot.notify.digest import request_digests
from bot.notify.send import request_sending
from bot.notify.settings import NotifySettings
from bot.notify.visibility import hidden_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.context import Context
    from bot.core.conditions import Condition
    from bot.db.transaction import Transaction
    from bot.notify.notices import Changes
    from bot.notify.receivers import Receiver
    from bot.notify.tables import ToldRow
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.notify.check")

SEEN_EVERY = 86_400_000  # milliseconds between two notes that a condition still holds


async def check_conditions(context: Context, _task: Task) -> None:
    """Tell people what began and what is over."""
    receivers = context.settings.of(NotifySettings).notify
    for audience in sorted({"public", *(one.audience for one in receivers)}):
        mine = [one for one in receivers if one.audience == audience]
        await _check(context, audience, mine)
    await request_digests(context, receivers)
    await _drop_unknown(context, {one.name for one in receivers})


async def _drop_unknown(context: Context, names: Collection[str]) -> None:
    """Give up what waits for receivers that were taken out of the settings."""
    async with context.store.read() as tx:
        unknown = await rows.awaited_receivers(tx) - set(names)
    if unknown:
        async with context.store.transaction() as tx:
            gone = await rows.drop_waiting(tx, unknown)
        log.warning("notices are not sent: their receiver is no longer in the settings", notices=gone)


async def _check(context: Context, audience: str, receivers: Sequence[Receiver]) -> None:
    async with context.store.read() as tx:
        scope = Scope(
            hidden=await hidden_of(tx, context.settings, audience),
            told=await rows.told_keys(tx, audience),
        )
        found: list[Condition] = []
        for read in load_each(context.features, "conditions"):
            found += await read(context, tx, scope)
        stale = await rows.stale_keys(tx, audience, tx.now - SEEN_EVERY)
    changes = notices.compare(found, scope.told)
    still = stale & {(one.event, one.key) for one in found if one.holds}
    if changes.any or still:
        async with context.store.transaction() as tx:
            await rows.mark_seen(tx, audience, still, tx.now - SEEN_EVERY)
            await _tell(tx, audience, changes, receivers)


async def _tell(tx: Transaction, audience: str, changes: Changes, receivers: Sequence[Receiver]) -> None:
    """Store what changed, the notices about it, and who is to get them."""
    for notice in notices.notices_of(changes.begun, audience=audience, now=tx.now):
        row = notice.row
        told = [_told(audience, row["event"], key, row["id"], tx.now) for key in notice.keys]
        if await rows.add_told(tx, told):
            await _store(tx, notice, receivers)
    over = [
        one
        for one in changes.over
        if await rows.end_told(tx, audience, one.event, one.key) and EVENTS[one.event]
    ]
    for notice in notices.notices_of(over, audience=audience, now=tx.now):
        await _store(tx, notice, receivers)


def _told(audience: str, event: str, key: str, notice_id: str, now: int) -> ToldRow:
    return {"audience": audience, "event": event, "key": key, "notice_id": notice_id, "seen_at": now}


async def _store(tx: Transaction, notice: notices.Notice, receivers: Collection[Receiver]) -> None:
    row = notice.row
    chosen = [
        one
        for one in receivers
        if one.wants(row["event"], repo=row["repo"], backend=row["backend"], oncalls=row["oncalls"])
    ]
    await rows.add_notice(tx, row, [one.name for one in chosen])
    for one in chosen:
        request_sending(tx, one)
    log.info("notice", notice_event=row["event"], heading=row["heading"], receivers=len(chosen))
