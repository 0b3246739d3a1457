"""Deliveries and tasks that wait, and the last delivery received, for /metrics and `ootbot doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.db import migrate
from bot.ingest.tables import delivery
from bot.queue.tables import task

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

STORED = delivery.c.state == "stored"
PARKED = delivery.c.state == "parked"
WEEK = 7 * 24 * 3_600_000  # milliseconds
FROM_GITHUB = ("webhook", "pull")


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """Numbers of what waits. Ages are milliseconds, 0 when nothing waits."""

    deliveries: int  # stored, not handled yet
    oldest_delivery: int  # age of the oldest of them
    due: int  # tasks that are due
    longest_due: int  # how long the first of them has been due
    running: int
    dead: int  # tasks given up
    parked: int  # deliveries of the last week that could not be handled


async def measure(tx: Transaction) -> Backlog:
    """Count what waits; an index answers every query."""
    count = sa.func.count()
    deliveries, first_received = await _fetch_row(
        tx, sa.select(count, sa.func.min(delivery.c.received_at)).where(STORED)
    )
    due, first_due = await _fetch_row(
        tx,
        sa.select(count, sa.func.min(task.c.due_at)).where(
            task.c.state == "waiting", task.c.due_at <= tx.now
        ),
    )
    by_state = (
        sa.select(task.c.state, count).where(task.c.state.in_(("running", "dead"))).group_by(task.c.state)
    )
    states: dict[str, int] = dict(tuple(row) for row in await tx.run(by_state))
    (parked,) = await _fetch_row(tx, sa.select(count).where(PARKED, delivery.c.received_at >= tx.now - WEEK))
    return Backlog(
        deliveries=deliveries,
        oldest_delivery=tx.now - (first_received or tx.now),
        due=due,
        longest_due=tx.now - (first_due or tx.now),
        running=states.get("running", 0),
        dead=states.get("dead", 0),
        parked=parked,
    )


async def _fetch_row(tx: Transaction, query: sa.Select[*tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple((await tx.run(query)).one())


async def last_received(tx: Transaction) -> int | None:
    """Return when GitHub's last delivery was received (epoch milliseconds); a ping does not count."""
    query = (
        sa.select(delivery.c.received_at)
        .where(delivery.c.source.in_(FROM_GITHUB), delivery.c.event != "ping")
        .order_by(delivery.c.received_at.desc())
        .limit(1)
    )
    at: int | None = (await tx.run(query)).scalar()
    return at


async def version(tx: Transaction) -> str | None:
    """Return the schema's revision, None when there are no tables."""
    return await tx.conn.run_sync(migrate.version)


async def supported(tx: Transaction) -> bool:
    """Whether this version supports the schema of a newer one."""
    return await tx.conn.run_sync(migrate.supports)


async def touch(tx: Transaction) -> None:
    """Write without changing anything, to see whether the database accepts writes."""
    await tx.run(sa.text("UPDATE alembic_version SET version_num = version_num"))
