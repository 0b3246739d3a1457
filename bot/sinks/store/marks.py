"""Statements about marks: raising them, taking the oldest, removing those that were sent."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.db.rows import select
from bot.db.statements import RowStatement, Statement
from bot.db.transaction import among_given
from bot.sinks.tables import Mark, sink_mark

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.db.transaction import Transaction

M = sink_mark.c
KEYS_PER_QUERY = 200  # SQLite limits bound parameters
REMOVED_AT_ONCE = 1_000  # their keys are one parameter there
OF_LANE = (M.sink == sa.bindparam("of_sink"), M.what == sa.bindparam("of_what"))
RAISE = (
    "INSERT INTO sink_mark (sink, what, key, since, generation) VALUES (?, ?, ?, ?, 1) "
    "ON CONFLICT (sink, what, key) DO UPDATE SET generation = generation + 1"
)
OLDEST = (
    select(Mark, sink_mark)
    .where(*OF_LANE)
    .order_by(M.since, M.key)
    .limit(sa.bindparam("most", type_=sa.Integer))
)
LATER = sa.tuple_(M.since, M.key) > sa.tuple_(
    sa.bindparam("after_since", type_=M.since.type), sa.bindparam("after_key", type_=M.key.type)
)
FIRST, NEXT = RowStatement(OLDEST), RowStatement(OLDEST.where(LATER))


class Waiting(NamedTuple):
    """What waits of a lane."""

    rows: int
    since: int  # epoch milliseconds, of the oldest


async def raise_marks(tx: Transaction, marks: Iterable[tuple[str, str, str]]) -> None:
    """Mark keys (sink, export, key) as to be sent, or once more where they are; in one order, so that none deadlock."""
    if tx.sqlite:  # as the driver takes them: this runs for every change, and nobody else writes meanwhile
        if given := [(*mark, tx.now) for mark in marks]:
            await tx.conn.exec_driver_sql(RAISE, given)
        return
    ordered = sorted(marks)
    if not ordered:
        return
    rows = [
        {"sink": sink, "what": what, "key": key, "since": tx.now, "generation": 1}
        for sink, what, key in ordered
    ]
    await tx.upsert(sink_mark, rows, added=("generation",))


async def take_oldest(
    tx: Transaction, sink: str, what: str, *, most: int, after: Mark | None = None
) -> list[Mark]:
    """Return the oldest marks of a lane, of those after one where it is given."""
    given = {"of_sink": sink, "of_what": what, "most": most}
    if after is None:
        return await tx.fetch(FIRST, given)
    return await tx.fetch(NEXT, given | {"after_since": after["since"], "after_key": after["key"]})


async def remove_sent(tx: Transaction, sink: str, what: str, sent: Sequence[Mark]) -> None:
    """Remove marks that were not raised again since they were taken.

    One that another transaction is raising is left alone: waiting for it could be waiting for each other.
    """
    removing = _removing(sqlite=tx.sqlite)
    for start in range(0, len(sent), REMOVED_AT_ONCE):
        part = sent[start : start + REMOVED_AT_ONCE]
        keys = tx.keys([(mark["key"], mark["since"], mark["generation"]) for mark in part])
        await tx.run(removing, {"of_sink": sink, "of_what": what, "sent": keys})


@functools.cache
def _removing(*, sqlite: bool) -> Statement:
    unchanged = (*OF_LANE, among_given((M.key, M.since, M.generation), "sent", sqlite=sqlite))
    if sqlite:
        return Statement(sa.delete(sink_mark).where(*unchanged))
    free = sa.select(M.key).where(*unchanged).order_by(M.key).with_for_update(skip_locked=True)
    return Statement(sa.delete(sink_mark).where(*OF_LANE, M.key.in_(free)))


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
