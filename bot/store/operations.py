"""What does an operator look at, set going again, or dismiss? Single deliveries and tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.store import inbox
from bot.store.tables import task

if TYPE_CHECKING:
    from bot.store.transaction import Transaction

Row = dict[str, Any]
STATES = ("waiting", "running", "done", "dead")
RETRYABLE = ("dead", "waiting")


async def replay(tx: Transaction, guid: str) -> Row | None:
    """Have a delivery handled once more, all of it; returns it as it was, None when it is not held.

    Handling is idempotent: what was done already is not done again. What was meant for another App is left alone.
    """
    found = await inbox.find(tx, guid)
    if found is not None and found["state"] != "foreign":
        await inbox.again(tx, guid)
    return found


async def tasks(tx: Transaction, *, state: str | None, before: int | None, limit: int) -> list[Row]:
    """Return tasks, newest first; `before` is the id of the last one of the page before."""
    query = sa.select(task)
    if state is not None:
        query = query.where(task.c.state == state)
    if before is not None:
        query = query.where(task.c.id < before)
    return await tx.rows(query.order_by(task.c.id.desc()).limit(limit))


async def dead(tx: Transaction) -> list[int]:
    """Return the ids of all tasks given up, oldest first."""
    query = sa.select(task.c.id).where(task.c.state == "dead").order_by(task.c.id)
    return list((await tx.run(query)).scalars())


async def dismiss(tx: Transaction, identifier: int) -> Row | None:
    """Have nobody look at a dead task any more; returns it as it was, None when there is none."""
    found = await _held(tx, identifier)
    if found is not None and found["state"] == "dead":
        await tx.run(sa.update(task).where(task.c.id == identifier).values(state="done"))
    return found


async def retry(tx: Transaction, identifier: int) -> Row | None:
    """Have a dead or waiting task run at once; returns it as it was, None when there is none.

    A dead one whose key waits already is done with: the waiting one takes its place.
    """
    found = await _held(tx, identifier)
    if found is None or found["state"] not in RETRYABLE:
        return found
    tx.stirred = True
    mine = sa.update(task).where(task.c.id == identifier)
    waiting = (task.c.kind == found["kind"], task.c.key == found["key"], task.c.state == "waiting")
    alive = {"state": "waiting", "due_at": tx.now, "attempts": 0, "finished_at": None, "error": None}
    try:
        async with tx.conn.begin_nested():
            await tx.run(mine.values(alive if found["state"] == "dead" else {"due_at": tx.now}))
    except sa.exc.IntegrityError:  # its key waits, perhaps since this very moment: there may be no two
        await tx.run(sa.update(task).where(*waiting).values(due_at=tx.now))
        await tx.run(mine.values(state="done", error="its key waits again"))
    return found


async def _held(tx: Transaction, identifier: int) -> Row | None:
    """Return a task that nobody else changes until the transaction ends."""
    query = sa.select(task).where(task.c.id == identifier)
    return await tx.row(query if tx.sqlite else query.with_for_update())
