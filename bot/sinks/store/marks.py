"""Statements about marks: raising them, taking the oldest, removing those that were sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.db.rows import select
from bot.db.statements import RowStatement
from bot.sinks.tables import Mark, sink_mark

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.db.transaction import Transaction

M = sink_mark.c
KEYS_PER_QUERY = 200  # SQLite limits bound parameters
OF_LANE = (M.sink == sa.bindparam("of_sink"), M.what == sa.bindparam("of_what"))
RAISE = (
    "INSERT INTO sink_mark (sink, what, key, since, generation) VALUES (?, ?, ?, ?, 1) "
    "ON CONFLICT (sink, what, key) DO UPDATE SET generation = generation + 1"
)
OLDEST = RowStatement(
    select(Mark, sink_mark)
    .where(*OF_LANE)
    .order_by(M.since, M.key)
    .limit(sa.bindparam("most", type_=sa.Integer))
)


class Waiting(NamedTuple):
    """What waits of a lane."""

    rows: int
    since: int  # epoch milliseconds, of the oldest


async def raise_marks(tx: Transaction, marks: Iterable[tuple[str, str, str]]) -> None:
    """Mark keys (sink, export, key) as to be sent, or once more where they are; in one order, so that none deadlock."""
    ordered = sorted(marks)
    if not ordered:
        return
    if tx.sqlite:  # as the driver takes them: this runs for every change
        await tx.conn.exec_driver_sql(RAISE, [(*mark, tx.now) for mark in ordered])
        return
    rows = [
        {"sink": sink, "what": what, "key": key, "since": tx.now, "generation": 1}
        for sink, what, key in ordered
    ]
    await tx.upsert(sink_mark, rows, added=("generation",))


async def take_oldest(tx: Transaction, sink: str, what: str, *, most: int) -> list[Mark]:
    """Return the oldest marks of a lane."""
    return await tx.fetch(OLDEST, {"of_sink": sink, "of_what": what, "most": most})


async def remove_sent(tx: Transaction, sink: str, what: str, sent: Sequence[Mark]) -> None:
    """Remove marks that were not raised again since they were taken.

    One that another transaction is raising is left alone: waiting for it could be waiting for each other.
    """
    for start in range(0, len(sent), KEYS_PER_QUERY):
        part = [
            (mark["key"], mark["since"], mark["generation"]) for mark in sent[start : start + KEYS_PER_QUERY]
        ]
        unchanged = (M.sink == sink, M.what == what, tx.among((M.key, M.since, M.generation), part))
        if tx.sqlite:
            await tx.run(sa.delete(sink_mark).where(*unchanged))
            continue
        free = sa.select(M.key).where(*unchanged).order_by(M.key).with_for_update(skip_locked=True)
        await tx.run(sa.delete(sink_mark).where(M.sink == sink, M.what == what, M.key.in_(free)))


async def count_waiting(tx: Transaction) -> dict[tuple[str, str], Waiting]:
    """Return what waits, by sink and export."""
    query = sa.select(M.sink, M.what, sa.func.count(), sa.func.min(M.since)).group_by(M.sink, M.what)
    return {(sink, what): Waiting(count, since) for sink, what, count, since in await tx.run(query)}


async def have_marks(tx: Transaction, sink: str, *, until: int | None = None) -> bool:
    """Whether anything waits for a sink that was marked up to a time."""
    query = sa.select(M.key).where(M.sink == sink)
    if until is not None:
        query = query.where(M.since <= until)
    return (await tx.run(query.limit(1))).scalar() is not None


async def marked_among(tx: Transaction, sink: str, what: str, keys: Sequence[str]) -> set[str]:
    """Return which of these keys wait to be sent."""
    found: set[str] = set()
    for start in range(0, len(keys), KEYS_PER_QUERY):
        some = M.key.in_(list(keys[start : start + KEYS_PER_QUERY]))
        query = sa.select(M.key).where(M.sink == sink, M.what == what, some)
        found |= set((await tx.run(query)).scalars())
    return found


async def remove_lane(tx: Transaction, sink: str, what: str) -> int:
    """Remove all marks of a lane; returns how many."""
    done = await tx.run(sa.delete(sink_mark).where(M.sink == sink, M.what == what))
    return done.rowcount
