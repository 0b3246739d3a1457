"""Statements about stable commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.extras.stable.tables import StablePushRow, stable_push
from bot.db.rows import select

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.db.transaction import Transaction

P = stable_push.c


async def add_move(tx: Transaction, row: StablePushRow) -> None:
    """Store a move; one that is known stays as it was found first."""
    if (await tx.run(tx.insert(stable_push).on_conflict_do_nothing(), [row])).rowcount:
        tx.note_changed("stable_push", [row])


async def newest_moves(
    tx: Transaction, owners: Collection[int], *, since: int, limit: int
) -> list[StablePushRow]:
    """Return the moves since a time, the newest first."""
    query = select(StablePushRow, stable_push).where(P.repository_id.in_(sorted(owners)), P.at >= since)
    return await tx.fetch(query.order_by(P.at.desc(), P.sha).limit(limit))
