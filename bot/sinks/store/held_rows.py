"""Deliveries that are kept because a sink does not have them yet, for a week longer than others at most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ingest.exports import DELIVERIES
from bot.ingest.tables import delivery
from bot.sinks.store import refused_rows
from bot.sinks.tables import sink_mark, sink_state

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

M, S = sink_mark.c, sink_state.c
KEY_OF_DELIVERY = sa.literal('["') + delivery.c.guid + sa.literal('"]')  # as encode_key writes it
# sink by sink, of which there are few: so it is looked up by the key of marks
IS_MARKED = sa.exists().where(
    S.what == DELIVERIES, M.sink == S.sink, M.what == S.what, M.key == KEY_OF_DELIVERY
)
GONE = "it was deleted here, after its retention and a week more, before this sink had it"


def retained(table: sa.Table) -> sa.ColumnElement[bool] | None:
    """Keep deliveries until the sinks that want them have them."""
    return IS_MARKED if table is delivery else None


async def give_up_marks(tx: Transaction, *, before: int, limit: int) -> list[tuple[str, str]]:
    """Let go of some marked deliveries received before a time, each noted as refused; returns sink and key of each."""
    of_delivery = sa.and_(M.what == DELIVERIES, M.key == KEY_OF_DELIVERY)
    query = sa.select(M.sink, M.key).join_from(sink_mark, delivery, of_delivery)
    found = [tuple(row) for row in await tx.run(query.where(delivery.c.received_at < before).limit(limit))]
    for sink, key in found:
        await tx.run(sa.delete(sink_mark).where(M.sink == sink, M.what == DELIVERIES, M.key == key))
    for sink in sorted({sink for sink, _ in found}):
        reasons = {key: GONE for name, key in found if name == sink}
        await refused_rows.note_refused(tx, sink, DELIVERIES, reasons)
    return found
