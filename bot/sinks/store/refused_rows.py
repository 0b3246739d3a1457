"""Rows that a sink does not take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.db.rows import select
from bot.sinks.tables import RefusedRow, sink_refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.db.transaction import Transaction

R = sink_refused.c
KEYS_PER_QUERY = 200


async def note_refused(tx: Transaction, sink: str, what: str, reasons: Mapping[str, str]) -> None:
    """Keep the keys of rows that were refused, with the reasons."""
    rows = [
        RefusedRow(sink=sink, what=what, key=key, error=error, at=tx.now)
        for key, error in sorted(reasons.items())
    ]
    if rows:
        await tx.upsert(sink_refused, rows, replaced=("error", "at"))


async def forget_refused(tx: Transaction, sink: str, what: str, keys: Sequence[str]) -> None:
    """Forget rows that were taken after all."""
    of_lane = (R.sink == sink, R.what == what)
    if (await tx.run(sa.select(R.key).where(*of_lane).limit(1))).scalar() is None:
        return
    for start in range(0, len(keys), KEYS_PER_QUERY):
        part = list(keys[start : start + KEYS_PER_QUERY])
        await tx.run(sa.delete(sink_refused).where(*of_lane, R.key.in_(part)))


async def list_refused(
    tx: Transaction, *, sink: str | None = None, what: str | None = None, key: str | None = None, limit: int
) -> list[RefusedRow]:
    """Return refused rows, the newest first."""
    query = select(RefusedRow, sink_refused)
    for column, value in ((R.sink, sink), (R.what, what), (R.key, key)):
        if value is not None:
            query = query.where(column == value)
    return await tx.fetch(query.order_by(R.at.desc(), R.sink, R.what, R.key).limit(limit))


async def count_refused(tx: Transaction) -> dict[tuple[str, str], int]:
    """Return how many rows were refused, by sink and export."""
    query = sa.select(R.sink, R.what, sa.func.count()).group_by(R.sink, R.what)
    return {(sink, what): count for sink, what, count in await tx.run(query)}


async def remove_lane(tx: Transaction, sink: str, what: str) -> None:
    """Forget all refused rows of a lane."""
    await tx.run(sa.delete(sink_refused).where(R.sink == sink, R.what == what))
