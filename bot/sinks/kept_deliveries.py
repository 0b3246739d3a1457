"""Keep deliveries for sinks that are away a week longer than others, and report those that are lost then."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import sqlalchemy as sa
import structlog

from bot.ingest.exports import DELIVERIES
from bot.ingest.tables import delivery
from bot.sinks import queue_rows, sending
from bot.sinks.tables import sink_mark, sink_state

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Transaction

CHANGE, STATE = sink_mark.c, sink_state.c
KEY_OF_DELIVERY = sa.literal('["') + delivery.c.guid + sa.literal('"]')  # as encode_key writes it
# sink by sink, of which there are few: so it is looked up by the key of marks
IS_WAITING = sa.exists().where(
    STATE.what == DELIVERIES,
    CHANGE.sink == STATE.sink,
    CHANGE.what == STATE.what,
    CHANGE.key == KEY_OF_DELIVERY,
)
GONE_REASON = "it was deleted here, after its retention and a week more, before this sink had it"
DAY = 86_400_000  # milliseconds
KEPT_LONGER = 7  # days
DELIVERIES_AT_ONCE = 200

log = structlog.get_logger("bot.sinks")


def retain_waiting(table: sa.Table) -> sa.ColumnElement[bool] | None:
    """Retain deliveries until the sinks that want them have them."""
    return IS_WAITING if table is delivery else None


async def give_up_changes(tx: Transaction, *, before: int, limit: int) -> list[tuple[str, str]]:
    """Give up deliveries received before a time, and note them as refused; returns sink and key of each."""
    of_delivery = sa.and_(CHANGE.what == DELIVERIES, CHANGE.key == KEY_OF_DELIVERY)
    query = sa.select(CHANGE.sink, CHANGE.key).join_from(sink_mark, delivery, of_delivery)
    waiting = [tuple(row) for row in await tx.run(query.where(delivery.c.received_at < before).limit(limit))]
    for sink, key in waiting:
        await tx.run(
            sa.delete(sink_mark).where(CHANGE.sink == sink, CHANGE.what == DELIVERIES, CHANGE.key == key)
        )
    for sink in sorted({sink for sink, _ in waiting}):
        reasons = {key: GONE_REASON for name, key in waiting if name == sink}
        await queue_rows.note_refused(tx, sink, DELIVERIES, reasons)
    return waiting


async def give_up_old_deliveries(context: Context) -> dict[str, int]:
    """Give up deliveries that a sink did not take in time; returns how many, by name, for the log."""
    keep = context.settings.raw_retention_days + KEPT_LONGER
    before = context.clock.now() - keep * DAY
    lost: Counter[str] = Counter()
    while True:
        async with context.store.transaction() as tx:
            given_up = await give_up_changes(tx, before=before, limit=DELIVERIES_AT_ONCE)
        lost.update(sink for sink, _ in given_up)
        if len(given_up) < DELIVERIES_AT_ONCE:
            break
    for sink, count in lost.items():
        sending.REFUSED_COUNTER.labels(sink, DELIVERIES).inc(count)
        log.error(
            "deliveries that a sink never took are deleted", sink=sink, deliveries=count, after_days=keep
        )
    return {"deliveries_without_copy": lost.total()}
