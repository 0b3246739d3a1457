"""Changes that a sink wants a copy of, noted in the transaction that makes them.

Consistency rests on this: each committed change leaves a row here, and the row goes only once the sink has accepted
something read after the change.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.db.exports import encode_key
from bot.db.rows import select
from bot.db.statements import RowStatement, Statement
from bot.db.transaction import among_given
from bot.sinks.queues import export_queues
from bot.sinks.tables import PendingChange, sink_mark

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.core.feature import Features
    from bot.core.settings import Settings
    from bot.db.transaction import BeforeCommit, Changed, Transaction
    from bot.sinks.queues import ExportQueue

CHANGE = sink_mark.c
KEYS_PER_QUERY = 200  # SQLite limits bound parameters
REMOVED_AT_ONCE = 1_000  # their keys are one parameter there
OF_QUEUE = (CHANGE.sink == sa.bindparam("of_sink"), CHANGE.what == sa.bindparam("of_what"))
NOTE_CHANGE = (
    "INSERT INTO sink_mark (sink, what, key, since, generation) VALUES (?, ?, ?, ?, 1) "
    "ON CONFLICT (sink, what, key) DO UPDATE SET generation = generation + 1"
)
OLDEST_CHANGES = (
    select(PendingChange, sink_mark)
    .where(*OF_QUEUE)
    .order_by(CHANGE.since, CHANGE.key)
    .limit(sa.bindparam("most", type_=sa.Integer))
)
LATER_CHANGES = sa.tuple_(CHANGE.since, CHANGE.key) > sa.tuple_(
    sa.bindparam("after_since", type_=CHANGE.since.type), sa.bindparam("after_key", type_=CHANGE.key.type)
)
FIRST_CHANGES, NEXT_CHANGES = RowStatement(OLDEST_CHANGES), RowStatement(OLDEST_CHANGES.where(LATER_CHANGES))
SEND_TASK, WITHDRAW_TASK = "sink", "sink_withdraw"  # kinds of tasks
QueuesByKey = dict[tuple[str, tuple[str, ...]], list["ExportQueue"]]  # by a table and the columns of a key


class WaitingChanges(NamedTuple):
    """The changes of a queue that wait."""

    rows: int
    since: int  # epoch milliseconds, of the oldest


async def note_changes(tx: Transaction, marks: Iterable[tuple[str, str, str]]) -> None:
    """Note keys (sink, export, key) as changed, or as changed again; in one order, so that none deadlock."""
    if tx.sqlite:  # as the driver takes them: this runs for every change, and nobody else writes meanwhile
        if given := [(*mark, tx.now) for mark in marks]:
            await tx.conn.exec_driver_sql(NOTE_CHANGE, given)
        return
    ordered = sorted(marks)
    if not ordered:
        return
    rows = [
        {"sink": sink, "what": what, "key": key, "since": tx.now, "generation": 1}
        for sink, what, key in ordered
    ]
    await tx.upsert(sink_mark, rows, added=("generation",))


async def take_oldest_changes(
    tx: Transaction, sink: str, what: str, *, most: int, after: PendingChange | None = None
) -> list[PendingChange]:
    """Return the oldest changes of a queue, or those after a given one."""
    given = {"of_sink": sink, "of_what": what, "most": most}
    if after is None:
        return await tx.fetch(FIRST_CHANGES, given)
    return await tx.fetch(NEXT_CHANGES, given | {"after_since": after["since"], "after_key": after["key"]})


async def remove_sent_changes(tx: Transaction, sink: str, what: str, sent: Sequence[PendingChange]) -> None:
    """Remove changes that were not noted again since they were taken.

    One that another transaction is noting is left alone: both could wait for each other.
    """
    removing = _removing_changes(sqlite=tx.sqlite)
    for start in range(0, len(sent), REMOVED_AT_ONCE):
        part = sent[start : start + REMOVED_AT_ONCE]
        keys = tx.keys([(mark["key"], mark["since"], mark["generation"]) for mark in part])
        await tx.run(removing, {"of_sink": sink, "of_what": what, "sent": keys})


async def count_waiting(tx: Transaction) -> dict[tuple[str, str], WaitingChanges]:
    """Return how many changes wait, by sink and export."""
    query = sa.select(CHANGE.sink, CHANGE.what, sa.func.count(), sa.func.min(CHANGE.since)).group_by(
        CHANGE.sink, CHANGE.what
    )
    return {(sink, what): WaitingChanges(count, since) for sink, what, count, since in await tx.run(query)}


async def has_changes(tx: Transaction, sink: str, *, until: int | None = None) -> bool:
    """Whether changes up to a time wait for a sink."""
    query = sa.select(CHANGE.key).where(CHANGE.sink == sink)
    if until is not None:
        query = query.where(CHANGE.since <= until)
    return (await tx.run(query.limit(1))).scalar() is not None


async def waiting_among(tx: Transaction, sink: str, what: str, keys: Sequence[str]) -> set[str]:
    """Return which of these keys wait to be sent."""
    waiting: set[str] = set()
    for start in range(0, len(keys), KEYS_PER_QUERY):
        some = CHANGE.key.in_(list(keys[start : start + KEYS_PER_QUERY]))
        query = sa.select(CHANGE.key).where(CHANGE.sink == sink, CHANGE.what == what, some)
        waiting |= set((await tx.run(query)).scalars())
    return waiting


async def remove_changes(tx: Transaction, sink: str, what: str) -> int:
    """Remove all changes of a queue; returns how many."""
    done = await tx.run(sa.delete(sink_mark).where(CHANGE.sink == sink, CHANGE.what == what))
    return done.rowcount


def make_observer(settings: Settings, features: Features) -> BeforeCommit | None:
    """Return the hook that notes changes; None without sinks, so that it costs nothing."""
    wanted = export_queues(settings, features)
    if not wanted:
        return None
    by_key: QueuesByKey = {}
    for queue in wanted:
        by_key.setdefault((queue.export.table.name, queue.export.key_names), []).append(queue)
        for addition in queue.additions:
            by_key.setdefault((addition.table.name, addition.key), []).append(queue)
    withdraws = any(not queue.sink.private for queue in wanted)

    async def observe(tx: Transaction, changed: Changed) -> None:
        await _note_changes(tx, changed, by_key)
        if withdraws:
            _withdraw_private(tx, changed)

    return observe


@functools.cache
def _removing_changes(*, sqlite: bool) -> Statement:
    unchanged = (*OF_QUEUE, among_given((CHANGE.key, CHANGE.since, CHANGE.generation), "sent", sqlite=sqlite))
    if sqlite:
        return Statement(sa.delete(sink_mark).where(*unchanged))
    free = sa.select(CHANGE.key).where(*unchanged).order_by(CHANGE.key).with_for_update(skip_locked=True)
    return Statement(sa.delete(sink_mark).where(*OF_QUEUE, CHANGE.key.in_(free)))


async def _note_changes(tx: Transaction, changed: Changed, by_key: QueuesByKey) -> None:
    """Note what changed for all queues at once; the text of a key is made once, however many there are."""
    changes: list[tuple[str, str, str]] = []
    for (table, names), concerned in by_key.items():
        if not (rows := changed.get(table)):
            continue
        keys = {encode_key([row[name] for name in names]) for row in rows}
        for queue in concerned:
            sink, what = queue.sink.name, queue.what
            changes += [(sink, what, key) for key in keys]
            tx.enqueue(SEND_TASK, queue.task_key, delay=queue.sink.batch_seconds, replayed=True)
    await note_changes(tx, dict.fromkeys(changes))  # an addition may mark what its table's own export does


def _withdraw_private(tx: Transaction, changed: Changed) -> None:
    """Request that the copies of repositories that are now private be deleted."""
    for row in changed.get("repository", ()):
        if row["private"] is not False:
            tx.enqueue(WITHDRAW_TASK, str(row["repository_id"]), replayed=True)
