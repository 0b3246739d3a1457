"""How much was accepted of callers lately: reads and writes of oot_rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from bot.core.clock import JITTER
from bot.db.statements import Statement
from bot.oot.reports.tables import oot_rate

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bot.db.transaction import Transaction

MINUTE, HOUR = 60, 3600  # seconds
LONGEST_WINDOW = 3600  # seconds
LOCK = 1  # namespace of these advisory locks
RATE = oot_rate.c
ACCEPTED_LATELY = Statement(
    sa.select(
        RATE.caller,
        sa.func.sum(RATE.accepted).label("count"),
        sa.func.min(RATE.second).label("oldest"),
    )
    .where(
        sa.or_(
            RATE.caller.in_(sa.bindparam("minutely", expanding=True))
            & (RATE.second > sa.bindparam("minute_ago")),
            RATE.caller.in_(sa.bindparam("hourly", expanding=True))
            & (RATE.second > sa.bindparam("hour_ago")),
        ),
        RATE.second <= sa.bindparam("latest"),
    )
    .group_by(RATE.caller)
)


async def lock(tx: Transaction, callers: Collection[str]) -> None:
    """Let no other process accept reports of these callers until the transaction ends: both could exceed a limit."""
    if callers and not tx.sqlite:  # which has one writer at a time
        names = sa.func.unnest(sa.literal(sorted(callers), ARRAY(sa.Text))).column_valued("name")
        digest = sa.func.hashtext(names).label("digest")
        ordered = sa.select(digest).distinct().order_by(digest).subquery()
        await tx.run(sa.select(sa.func.pg_advisory_xact_lock(LOCK, ordered.c.digest)))


async def read_lately(
    tx: Transaction, *, minutely: Collection[str] = (), hourly: Collection[str] = ()
) -> dict[str, tuple[int, int]]:
    """Return how much of each share was accepted within its minute or hour, and the second of the oldest."""
    if not minutely and not hourly:
        return {}
    now = tx.now // 1000
    spans = {"minutely": sorted(minutely), "minute_ago": now - MINUTE}
    spans |= {"hourly": sorted(hourly), "hour_ago": now - HOUR}
    # later ones a wrong clock noted
    rows = await tx.rows(ACCEPTED_LATELY, spans | {"latest": (tx.now + JITTER) // 1000})
    return {row["caller"]: (int(row["count"]), int(row["oldest"])) for row in rows}


async def record(tx: Transaction, accepted: Mapping[str, int]) -> None:
    """Record how many reports were accepted, by caller."""
    if not accepted:
        return
    second = tx.now // 1000
    rows = [
        {"caller": caller, "second": second, "accepted": count} for caller, count in sorted(accepted.items())
    ]
    await tx.upsert(oot_rate, rows, added=("accepted",))


async def forget(tx: Transaction) -> None:
    """Delete counts older than any window."""
    first, last = tx.now // 1000 - LONGEST_WINDOW, (tx.now + JITTER) // 1000
    await tx.run(sa.delete(oot_rate).where(~oot_rate.c.second.between(first, last)))
