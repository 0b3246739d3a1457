"""What time is it where several machines work on one database? The database's, whatever each of them thinks.

Leases, budgets and what is due are times in the database that every process compares with its own. A machine whose
clock is off by more than a moment goes by the database's instead, and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import sqlalchemy as sa
import structlog

from bot.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bot.clock import Clock
    from bot.store.store import Store

MOMENT = 1_000  # milliseconds two clocks may differ: NTP keeps them closer, and what is shared lasts longer
ASKED = 3  # times for each comparison
EVERY = 20.0  # seconds between two comparisons: a clock may be set at any time
NOW = sa.text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)")

log = structlog.get_logger("bot.store.shared_time")


class SharedClock:
    """A machine's clock, put right by the database's once it has been compared."""

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._behind = 0  # milliseconds that are added to the machine's time

    def now(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return self._own.now() + self._behind

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds."""
        await self._own.sleep(seconds)

    async def compare(self, store: Store) -> None:
        """Ask the database for the time, and go by it where the machine's is wrong."""
        behind = await behind_database(store, self._own)
        if abs(behind - self._behind) <= MOMENT:
            return
        self._behind = behind if abs(behind) > MOMENT else 0
        if self._behind:
            log.error("this machine's clock is wrong: set it; the database's is used", seconds=-behind / 1000)
        else:
            log.info("this machine's clock is right again")

    @contextlib.asynccontextmanager
    async def following(self, store: Store) -> AsyncIterator[None]:
        """Compare now, and again and again while the block runs. With SQLite there is one machine, and one clock."""
        if store.sqlite:
            yield
            return
        await self.compare(store)
        comparing = asyncio.create_task(self._follow(store))
        try:
            yield
        finally:
            comparing.cancel()

    async def _follow(self, store: Store) -> None:
        while True:
            await asyncio.sleep(EVERY)
            with contextlib.suppress(StoreUnavailable):  # whoever works says so
                await self.compare(store)


async def behind_database(store: Store, clock: Clock) -> int:
    """Return by how many milliseconds a clock is behind PostgreSQL's; negative when it is ahead.

    Of a few answers the quickest counts: it is off by at most half of what it took.
    """
    answers = []
    async with store.read() as tx:
        for _ in range(ASKED):
            asked = clock.now()
            told: int = (await tx.run(NOW)).scalar_one()
            answered = clock.now()
            answers.append((answered - asked, told - (asked + answered) // 2))
    _, behind = min(answers)
    return behind
