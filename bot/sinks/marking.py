"""Marks: what changes that a sink wants a copy of is marked in the transaction that changes it.

The whole consistency is in this: each committed change leaves a mark, and a mark is removed only once what was read no
earlier than the change was accepted by the sink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.db.exports import encode_key
from bot.sinks.lanes import Lane, lanes
from bot.sinks.store import marks

if TYPE_CHECKING:
    from bot.core.feature import Features
    from bot.core.settings import Settings
    from bot.db.transaction import BeforeCommit, Changed, Transaction

SEND, WITHDRAW = "sink", "sink_withdraw"  # kinds of tasks
Concerned = dict[tuple[str, tuple[str, ...]], list["Lane"]]  # by a table and the columns of a key


def make_observer(settings: Settings, features: Features) -> BeforeCommit | None:
    """Return the hook that marks what changes; None without sinks, so that it costs nothing."""
    wanted = lanes(settings, features)
    if not wanted:
        return None
    by_key: Concerned = {}
    for lane in wanted:
        by_key.setdefault((lane.export.table.name, lane.export.key_names), []).append(lane)
        for addition in lane.additions:
            by_key.setdefault((addition.table.name, addition.key), []).append(lane)
    withdraws = any(not lane.sink.private for lane in wanted)

    async def observe(tx: Transaction, changed: Changed) -> None:
        await _mark(tx, changed, by_key)
        if withdraws:
            _withdraw_private(tx, changed)

    return observe


async def _mark(tx: Transaction, changed: Changed, by_key: Concerned) -> None:
    """Mark what changed for all lanes at once; the text of a key is made once, however many there are."""
    found: list[tuple[str, str, str]] = []
    for (table, names), concerned in by_key.items():
        if not (rows := changed.get(table)):
            continue
        keys = {encode_key([row[name] for name in names]) for row in rows}
        for lane in concerned:
            sink, what = lane.sink.name, lane.what
            found += [(sink, what, key) for key in keys]
            tx.enqueue(SEND, lane.task_key, delay=lane.sink.batch_seconds, replayed=True)
    await marks.raise_marks(tx, dict.fromkeys(found))  # an addition may mark what its table's own export does


def _withdraw_private(tx: Transaction, changed: Changed) -> None:
    """Have the copies of repositories deleted that are private now; where there are none, the task does nothing."""
    for row in changed.get("repository", ()):
        if row["private"] is not False:
            tx.enqueue(WITHDRAW, str(row["repository_id"]), replayed=True)
