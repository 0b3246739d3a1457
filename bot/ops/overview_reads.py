"""Reads of the administration pages: deliveries and tasks by state, the newest of them, what one delivery caused."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import sqlalchemy as sa

from bot.ingest.tables import SweepRow, delivery, sweep
from bot.oot.results.tables import DispatchRow, oot_dispatch
from bot.queue.tables import TaskRow, task

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

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


class ListedDelivery(TypedDict):
    """A delivery without its headers and body."""

    id: int
    guid: str
    event: str
    action: str | None
    repo: str | None
    source: str
    received_at: int
    state: str
    error: str | None


class StateCount(TypedDict):
    """How many deliveries or tasks are in a state."""

    state: str
    count: int


async def delivery_counts(tx: Transaction, *, since: int) -> dict[str, int]:
    """Return how many deliveries of some time are in each state."""
    newest = sa.select(HELD.state).where(HELD.received_at >= since)
    part = newest.order_by(HELD.received_at.desc()).limit(MOST_COUNTED).subquery()
    query = sa.select(part.c.state, sa.func.count().label("count")).group_by(part.c.state)
    return {row["state"]: row["count"] for row in await tx.rows_as(StateCount, query)}


async def deliveries(
    tx: Transaction, *, state: str | None, event: str | None, before: int | None, limit: int
) -> list[ListedDelivery]:
    """Return deliveries without their bodies, newest first; `before` is the id of the last one of the page before."""
    query = sa.select(*LISTED)
    if state:
        query = query.where(HELD.state == state)
    if event:
        query = query.where(HELD.event == event)
    if before is not None:
        query = query.where(HELD.id < before)
    return await tx.rows_as(ListedDelivery, query.order_by(HELD.id.desc()).limit(limit))


async def task_counts(tx: Transaction) -> dict[str, int]:
    """Return how many tasks are in each state; finished ones are left out."""
    query = sa.select(task.c.state, sa.func.count().label("count")).where(task.c.state != "done")
    return {row["state"]: row["count"] for row in await tx.rows_as(StateCount, query.group_by(task.c.state))}


async def failing_tasks(tx: Transaction, *, late: int, limit: int) -> list[TaskRow]:
    """Return the tasks that wait after a failure, or were due before `late`, newest first."""
    troubled = (task.c.attempts > 0) | (task.c.due_at < late)
    query = sa.select(task).where(task.c.state == "waiting", troubled)
    return await tx.rows_as(TaskRow, query.order_by(task.c.id.desc()).limit(limit))


async def caused_tasks(tx: Transaction, guid: str, *, limit: int) -> list[TaskRow]:
    """Return the tasks that a delivery asked for first."""
    query = sa.select(task).where(task.c.cause == guid)
    return await tx.rows_as(TaskRow, query.order_by(task.c.id).limit(limit))


async def caused_dispatches(tx: Transaction, guid: str, *, limit: int) -> list[DispatchRow]:
    """Return the dispatches of a delivery."""
    query = sa.select(oot_dispatch).where(oot_dispatch.c.source_guid == guid)
    return await tx.rows_as(
        DispatchRow, query.order_by(oot_dispatch.c.created_at, oot_dispatch.c.id).limit(limit)
    )


async def sweeps(tx: Transaction) -> list[SweepRow]:
    """Return what is known of every sweep."""
    return await tx.rows_as(SweepRow, sa.select(sweep).order_by(sweep.c.name, sweep.c.app_id))
