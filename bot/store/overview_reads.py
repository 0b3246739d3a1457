"""What does an operator look at first? Deliveries and tasks by state, the newest of them, what one delivery caused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.store.tables import delivery, oot_dispatch, sweep, task

if TYPE_CHECKING:
    from bot.store.transaction import Transaction

Row = dict[str, Any]
HELD = delivery.c
LISTED = (
    HELD.id,
    HELD.guid,
    HELD.event,
    HELD.action,
    HELD.repo,
    HELD.source,
    HELD.received_at,
    HELD.state,
    HELD.error,
)
STATES = ("stored", "handled", "ignored", "foreign", "parked")
MOST_COUNTED = 100_000  # newest deliveries


async def delivery_counts(tx: Transaction, *, since: int) -> dict[str, int]:
    """Return how many deliveries of some time are in each state."""
    newest = sa.select(HELD.state).where(HELD.received_at >= since)
    part = newest.order_by(HELD.received_at.desc()).limit(MOST_COUNTED).subquery()
    rows = await tx.rows(sa.select(part.c.state, sa.func.count().label("count")).group_by(part.c.state))
    return {row["state"]: row["count"] for row in rows}


async def deliveries(
    tx: Transaction, *, state: str | None, event: str | None, before: int | None, limit: int
) -> list[Row]:
    """Return deliveries without their bodies, newest first; `before` is the id of the last one of the page before."""
    query = sa.select(*LISTED)
    if state:
        query = query.where(HELD.state == state)
    if event:
        query = query.where(HELD.event == event)
    if before is not None:
        query = query.where(HELD.id < before)
    return await tx.rows(query.order_by(HELD.id.desc()).limit(limit))


async def task_counts(tx: Transaction) -> dict[str, int]:
    """Return how many tasks are in each state; what is done is not counted."""
    query = sa.select(task.c.state, sa.func.count().label("count")).where(task.c.state != "done")
    return {row["state"]: row["count"] for row in await tx.rows(query.group_by(task.c.state))}


async def failing_tasks(tx: Transaction, *, late: int, limit: int) -> list[Row]:
    """Return the tasks that wait after a failure, or were due before `late`, newest first."""
    troubled = (task.c.attempts > 0) | (task.c.due_at < late)
    query = sa.select(task).where(task.c.state == "waiting", troubled)
    return await tx.rows(query.order_by(task.c.id.desc()).limit(limit))


async def caused_tasks(tx: Transaction, guid: str, *, limit: int) -> list[Row]:
    """Return the tasks that a delivery asked for first."""
    query = sa.select(task).where(task.c.cause == guid)
    return await tx.rows(query.order_by(task.c.id).limit(limit))


async def caused_dispatches(tx: Transaction, guid: str, *, limit: int) -> list[Row]:
    """Return what a delivery was relayed as."""
    query = sa.select(oot_dispatch).where(oot_dispatch.c.source_guid == guid)
    return await tx.rows(query.order_by(oot_dispatch.c.created_at, oot_dispatch.c.id).limit(limit))


async def sweeps(tx: Transaction) -> list[Row]:
    """Return what is known of every sweep."""
    return await tx.rows(sa.select(sweep).order_by(sweep.c.name, sweep.c.app_id))
