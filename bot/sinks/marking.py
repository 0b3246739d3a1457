"""Marks: what changes that a sink wants a copy of is marked in the transaction that changes it.

The whole consistency is in this: each committed change leaves a mark, and a mark is removed only once what was read no
earlier than the change was accepted by the sink.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from bot.db.exports import encode_key
from bot.sinks.lanes import Lane, lanes
from bot.sinks.store import marks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.core.feature import Features
    from bot.core.settings import Settings
    from bot.db.transaction import BeforeCommit, Changed, Transaction

SEND, WITHDRAW = "sink", "sink_withdraw"  # kinds of tasks


class _Marked(NamedTuple):
    """A lane that a change of a table marks something of."""

    lane: Lane
    names: tuple[str, ...]  # columns of the table that are the key of what is marked


def make_observer(settings: Settings, features: Features) -> BeforeCommit | None:
    """Return the hook that marks what changes; None without sinks, so that it costs nothing."""
    wanted = lanes(settings, features)
    if not wanted:
        return None
    by_table: defaultdict[str, list[_Marked]] = defaultdict(list)
    for lane in wanted:
        names = tuple(column.name for column in lane.export.key_columns)
        by_table[lane.export.table.name].append(_Marked(lane, names))
        for addition in lane.additions:
            by_table[addition.table.name].append(_Marked(lane, addition.key))
    withdraws = any(not lane.sink.private for lane in wanted)

    async def observe(tx: Transaction, changed: Changed) -> None:
        await _mark(tx, changed, by_table)
        if withdraws:
            _withdraw_private(tx, changed)

    return observe


async def _mark(tx: Transaction, changed: Changed, by_table: Mapping[str, Sequence[_Marked]]) -> None:
    found: set[tuple[str, str, str]] = set()
    for table, concerned in by_table.items():
        if not (rows := changed.get(table)):
            continue
        keys: dict[tuple[str, ...], list[str]] = {}
        for lane, names in concerned:
            if names not in keys:
                keys[names] = [encode_key(tuple(row[name] for name in names)) for row in rows]
            found.update((lane.sink.name, lane.what, key) for key in keys[names])
            tx.enqueue(SEND, lane.task_key, delay=lane.sink.batch_seconds, replayed=True)
    await marks.raise_marks(tx, found)


def _withdraw_private(tx: Transaction, changed: Changed) -> None:
    """Have the copies of repositories deleted that are private now; where there are none, the task does nothing."""
    for row in changed.get("repository", ()):
        if row["private"] is not False:
            tx.enqueue(WITHDRAW, str(row["repository_id"]), replayed=True)
