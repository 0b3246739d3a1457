"""The operator's view of the queue: list, retry and dismiss tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.db.rows import select
from bot.queue.tables import TaskRow, task

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

STATES = ("waiting", "running", "done", "dead")
RETRYABLE = ("dead", "waiting")


async def tasks(tx: Transaction, *, state: str | None, before: int | None, limit: int) -> list[TaskRow]:
    """Return tasks, newest first; `before` is the id of the last one on the previous page."""
    query = select(TaskRow, task)
    if state is not None:
        query = query.where(task.c.state == state)
    if before is not None:
        query = query.where(task.c.id < before)
    return await tx.fetch(query.order_by(task.c.id.desc()).limit(limit))


async def dead(tx: Transaction) -> list[int]:
    """Return the ids of all dead tasks, oldest first."""
    query = sa.select(task.c.id).where(task.c.state == "dead").order_by(task.c.id)
    return list((await tx.run(query)).scalars())


async def dismiss(tx: Transaction, identifier: int) -> TaskRow | None:
    """Close a dead task; returns it as it was, None when there is none."""
    found = await _locked(tx, identifier)
    if found is not None and found["state"] == "dead":
        await tx.run(sa.update(task).where(task.c.id == identifier).values(state="done"))
    return found


async def retry(tx: Transaction, identifier: int) -> TaskRow | None:
    """Make a dead or waiting task due at once; returns it as it was, None when there is none.

    A dead task whose key waits already is closed: the waiting one takes its place.
    """
    found = await _locked(tx, identifier)
    if found is None or found["state"] not in RETRYABLE:
        return found
    tx.wakes_workers = True
    this = sa.update(task).where(task.c.id == identifier)
    waiting = (task.c.kind == found["kind"], task.c.key == found["key"], task.c.state == "waiting")
    revived = {"state": "waiting", "due_at": tx.now, "attempts": 0, "finished_at": None, "error": None}
    try:
        async with tx.attempt():
            await tx.run(this.values(revived if found["state"] == "dead" else {"due_at": tx.now}))
    except sa.exc.IntegrityError:  # its key waits already, perhaps only since this moment
        await tx.run(sa.update(task).where(*waiting).values(due_at=tx.now))
        await tx.run(this.values(state="done", error="its key waits again"))
    return found


async def _locked(tx: Transaction, identifier: int) -> TaskRow | None:
    """Return a task, locked until the transaction ends."""
    query = select(TaskRow, task).where(task.c.id == identifier)
    return await tx.fetch_first(query if tx.sqlite else query.with_for_update())
