"""What lies there unfinished, and when did something last come in? For /metrics and `ootbot doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.store import migrate
from bot.store.tables import delivery, task

if TYPE_CHECKING:
    from bot.store.transaction import Transaction

STORED = delivery.c.state == "stored"
PARKED = delivery.c.state == "parked"
WEEK = 7 * 24 * 3_600_000  # milliseconds
FROM_GITHUB = ("webhook", "pull")


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """What waits. Ages are milliseconds, 0 when nothing waits."""

    deliveries: int  # stored and not handled yet
    oldest_delivery: int  # age of the first of them
    due: int  # tasks that should be running
    longest_due: int  # how long the first of them has been due
    running: int
    dead: int  # tasks given up
    parked: int  # deliveries of the last week that could not be handled


async def measure(tx: Transaction) -> Backlog:
    """Count what waits; every question is answered by an index."""
    waiting = await tx.row(
        sa.select(sa.func.count().label("count"), sa.func.min(delivery.c.received_at).label("first")).where(
            STORED
        )
    )
    due = await tx.row(
        sa.select(sa.func.count().label("count"), sa.func.min(task.c.due_at).label("first")).where(
            task.c.state == "waiting", task.c.due_at <= tx.now
        )
    )
    states = await tx.rows(
        sa.select(task.c.state, sa.func.count().label("count"))
        .where(task.c.state.in_(("running", "dead")))
        .group_by(task.c.state)
    )
    parked = await tx.row(
        sa.select(sa.func.count().label("count")).where(PARKED, delivery.c.received_at >= tx.now - WEEK)
    )
    counted = {row["state"]: row["count"] for row in states}
    assert waiting is not None
    assert due is not None
    assert parked is not None
    return Backlog(
        deliveries=waiting["count"],
        oldest_delivery=tx.now - (waiting["first"] or tx.now),
        due=due["count"],
        longest_due=tx.now - (due["first"] or tx.now),
        running=counted.get("running", 0),
        dead=counted.get("dead", 0),
        parked=parked["count"],
    )


async def last_heard(tx: Transaction) -> int | None:
    """Return when GitHub last told something (epoch milliseconds); its hello, a ping, does not count."""
    query = (
        sa.select(delivery.c.received_at)
        .where(delivery.c.source.in_(FROM_GITHUB), delivery.c.event != "ping")
        .order_by(delivery.c.received_at.desc())
        .limit(1)
    )
    at: int | None = (await tx.run(query)).scalar()
    return at


async def version(tx: Transaction) -> str | None:
    """Return the revision of the database's tables, None when there are none."""
    return await tx.conn.run_sync(migrate.version)


async def supported(tx: Transaction) -> bool:
    """Whether this version may work with a database of a newer one."""
    return await tx.conn.run_sync(migrate.supports)


async def touch(tx: Transaction) -> None:
    """Write something that changes nothing: the database takes it or refuses."""
    await tx.run(sa.text("UPDATE alembic_version SET version_num = version_num"))
