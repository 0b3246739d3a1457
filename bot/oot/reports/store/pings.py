"""Rows of pings: test dispatches, and what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.db.rows import select
from bot.ingest.rows import WorkflowRunRow
from bot.ingest.tables import records
from bot.oot.reports.tables import PingRow, oot_ping

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

PING, RUN = oot_ping.c, records["workflow_run"].c


async def add(tx: Transaction, row: PingRow) -> bool:
    """Add a ping; returns False where the same cause asked for one already."""
    added = await tx.upsert(oot_ping, [dict(row)], index=("cause",), returning=("id",))
    return bool(added.scalars())


async def get_ping(tx: Transaction, identifier: str) -> PingRow | None:
    """Return a ping by its delivery_id."""
    return await tx.fetch_first(select(PingRow, oot_ping).where(PING.id == identifier))


async def newest(tx: Transaction, backend: str, *, limit: int) -> list[PingRow]:
    """Return the newest pings of a backend."""
    query = select(PingRow, oot_ping).where(PING.backend_key == backend.casefold())
    return await tx.fetch(query.order_by(PING.created_at.desc(), PING.id).limit(limit))


async def count_since(tx: Transaction, backend: str, since: int) -> int:
    """Return how many pings were asked for of a backend since a time."""
    query = sa.select(sa.func.count()).where(PING.backend_key == backend.casefold(), PING.created_at >= since)
    found: int = (await tx.run(query)).scalar_one()
    return found


async def change(tx: Transaction, identifier: str, **values: Any) -> None:
    """Record what became of a ping."""
    await tx.run(sa.update(oot_ping).where(PING.id == identifier).values(values))


async def first_run(tx: Transaction, backend: str, event: str, since: int) -> WorkflowRunRow | None:
    """Return the first run that such an event started in a repository since a time."""
    query = select(WorkflowRunRow, records["workflow_run"]).where(
        sa.func.lower(RUN.repo) == backend.lower(), RUN.event == event, RUN.created_at >= since
    )
    return await tx.fetch_first(query.order_by(RUN.created_at, RUN.id).limit(1))


def older_than(before: int) -> sa.ColumnElement[bool]:
    """Return the condition of pings that are no longer needed."""
    return PING.created_at < before
