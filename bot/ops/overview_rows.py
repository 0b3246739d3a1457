"""Reads of the administration pages: deliveries and tasks by state, the newest of them, what one delivery caused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.db.rows import select
from bot.ingest.tables import DeliveryRow, SweepRow, delivery, sweep
from bot.oot.results.tables import DispatchRow, oot_dispatch
from bot.queue.tables import TaskRow, task

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

HELD = delivery.c
STATES = ("stored", "handled", "ignored", "foreign", "parked")
MOST_COUNTED = 100_000  # newest deliveries


async def delivery_counts(tx: Transaction, *, since: int) -> dict[str, int]:
    """Return how many deliveries of some time are in each state."""
    newest = sa.select(HELD.state).where(HELD.received_at >= since)
    part = newest.order_by(HELD.received_at.desc()).limit(MOST_COUNTED).subquery()
    query = sa.select(part.c.state, sa.func.count()).group_by(part.c.state)
    return {state: count for state, count in await tx.run(query)}  # noqa: C416 - rows are no pairs


async def list_deliveries(
    tx: Transaction, *, state: str | None, event: str | None, before: int | None, limit: int
) -> list[DeliveryRow]:
    """Return deliveries without their bodies, newest first; `before` is the id of the last one of the page before."""
    query = select(DeliveryRow, delivery, headers=sa.null(), body=sa.null())
    if state:
        query = query.where(HELD.state == state)
    if event:
        query = query.where(HELD.event == event)
    if before is not None:
        query = query.where(HELD.id < before)
    return await tx.fetch(query.order_by(HELD.id.desc()).limit(limit))


async def task_counts(tx: Transaction) -> dict[str, int]:
    """Return how many tasks are in each state; finished ones are left out."""
    query = sa.select(task.c.state, sa.func.count()).where(task.c.state != "done")
    return {state: count for state, count in await tx.run(query.group_by(task.c.state))}  # noqa: C416 - as above


async def failing_tasks(tx: Transaction, *, late: int, limit: int) -> list[TaskRow]:
    """Return the tasks that wait after a failure, or were due before `late`, newest first."""
    troubled = (task.c.attempts > 0) | (task.c.due_at < late)
    query = select(TaskRow, task).where(task.c.state == "waiting", troubled)
    return await tx.fetch(query.order_by(task.c.id.desc()).limit(limit))


async def caused_tasks(tx: Transaction, guid: str, *, limit: int) -> list[TaskRow]:
    """Return the tasks that a delivery asked for first."""
    query = select(TaskRow, task).where(task.c.cause == guid)
    return await tx.fetch(query.order_by(task.c.id).limit(limit))


async def caused_dispatches(tx: Transaction, guid: str, *, limit: int) -> list[DispatchRow]:
    """Return the dispatches of a delivery."""
    query = select(DispatchRow, oot_dispatch).where(oot_dispatch.c.source_guid == guid)
    return await tx.fetch(query.order_by(oot_dispatch.c.created_at, oot_dispatch.c.id).limit(limit))


async def list_sweeps(tx: Transaction) -> list[SweepRow]:
    """Return what is known of every sweep."""
    return await tx.fetch(select(SweepRow, sweep).order_by(sweep.c.name, sweep.c.app_id))
