"""How much was lately accepted of whom? Reads and writes of oot_rate: a caller is whatever has a share of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from bot.clock import JITTER
from bot.store.tables import oot_rate

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bot.store.transaction import Transaction

LONGEST_WINDOW = 3600  # seconds what was accepted is remembered
LOCK = 1  # what tells these advisory locks from others


async def take_turns(tx: Transaction, callers: Collection[str]) -> None:
    """Let no other process accept reports of these callers until the transaction ends: both could find room for one."""
    if callers and not tx.sqlite:  # which has one writer at a time
        names = sa.func.unnest(sa.literal(sorted(callers), ARRAY(sa.Text))).column_valued("name")
        digest = sa.func.hashtext(names).label("digest")
        ordered = sa.select(digest).distinct().order_by(digest).subquery()
        await tx.run(sa.select(sa.func.pg_advisory_xact_lock(LOCK, ordered.c.digest)))


async def accepted_lately(
    tx: Transaction, callers: Collection[str], *, window: int
) -> dict[str, tuple[int, int]]:
    """Return how much of each caller was accepted in so many seconds, and when the oldest of it was."""
    if not callers:
        return {}
    count, oldest = sa.func.sum(oot_rate.c.accepted), sa.func.min(oot_rate.c.second)
    query = sa.select(oot_rate.c.caller, count.label("count"), oldest.label("oldest")).where(
        oot_rate.c.caller.in_(sorted(callers)),
        oot_rate.c.second > tx.now // 1000 - window,
        oot_rate.c.second <= (tx.now + JITTER) // 1000,  # later ones a wrong clock noted
    )
    rows = await tx.rows(query.group_by(oot_rate.c.caller))
    return {row["caller"]: (int(row["count"]), int(row["oldest"])) for row in rows}


async def count(tx: Transaction, accepted: Mapping[str, int]) -> None:
    """Count what was accepted by caller."""
    if not accepted:
        return
    second = tx.now // 1000
    insert = tx.insert(oot_rate)
    more = {"accepted": oot_rate.c.accepted + insert.excluded.accepted}
    rows = [
        {"caller": caller, "second": second, "accepted": count} for caller, count in sorted(accepted.items())
    ]
    await tx.run(insert.on_conflict_do_update(index_elements=["caller", "second"], set_=more), rows)


async def forget(tx: Transaction) -> None:
    """Drop counts that no window reaches any more."""
    first, last = tx.now // 1000 - LONGEST_WINDOW, (tx.now + JITTER) // 1000
    await tx.run(sa.delete(oot_rate).where(~oot_rate.c.second.between(first, last)))
