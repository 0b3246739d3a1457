"""Rows of changes of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.trunk.tables import EventRow, trunk_event
from bot.db.rows import select

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.transaction import Transaction

CHANGING = ("state_before", "last_good", "signature", "at")


async def store_events(tx: Transaction, made: Sequence[EventRow]) -> None:
    """Store changes of one branch, and note those that were not known like that: most are."""
    first = made[0]
    query = select(EventRow, trunk_event).where(
        trunk_event.c.repository_id == first["repository_id"], trunk_event.c.branch == first["branch"]
    )
    known = await tx.fetch(
        query.where(trunk_event.c.first_bad.in_(sorted({row["first_bad"] for row in made})))
    )
    new = [row for row in made if row not in known]
    if new:
        await tx.upsert(trunk_event, [dict(row) for row in new], replaced=CHANGING)
        tx.note_changed("trunk_event", new)
