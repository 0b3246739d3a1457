"""The time that machines sharing a database agree on: the database's.

Leases, budgets and due times in the database are compared with each process's own clock. A machine whose clock is off
by more than the tolerance uses the database's instead, and logs it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import sqlalchemy as sa
import structlog

from bot.core.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bot.core.clock import Clock
    from bot.db.store import Store

TOLERANCE = 1_000  # milliseconds two clocks may differ: NTP keeps them closer, and leases last longer
SAMPLES = 3  # for each comparison
INTERVAL = 20.0  # seconds between comparisons: a clock may be set at any time
NOW = sa.text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)")

log = structlog.get_logger("bot.db.db_clock")


class DatabaseClock:
    """The machine's clock, corrected by the database's once the two have been compared."""

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._offset = 0  # milliseconds added to the machine's time

    def now(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return self._own.now() + self._offset

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds."""
        await self._own.sleep(seconds)

    async def compare(self, store: Store) -> None:
        """Compare with the database's time, and use it where the machine's is wrong."""
        offset = await offset_to_database(store, self._own)
        if abs(offset - self._offset) <= TOLERANCE:
            return
        self._offset = offset if abs(offset) > TOLERANCE else 0
        if self._offset:
            log.error("this machine's clock is wrong: set it; the database's is used", seconds=-offset / 1000)
        else:
            log.info("this machine's clock is right again")

    @contextlib.asynccontextmanager
    async def synchronized(self, store: Store) -> AsyncIterator[None]:
        """Compare now, and repeatedly while the block runs. SQLite has one machine, so one clock."""
        if store.sqlite:
            yield
            return
        await self.compare(store)
        comparing = asyncio.create_task(self._compare_repeatedly(store))
        try:
            yield
        finally:
            comparing.cancel()

    async def _compare_repeatedly(self, store: Store) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            with contextlib.suppress(StoreUnavailable):  # the next use of the database logs it
                await self.compare(store)


async def offset_to_database(store: Store, clock: Clock) -> int:
    """Return by how many milliseconds a clock is behind PostgreSQL's; negative when it is ahead.

    The quickest of a few answers counts: its error is at most half of the time it took.
    """
    samples = []
    async with store.read() as tx:
        for _ in range(SAMPLES):
            before = clock.now()
            theirs: int = (await tx.run(NOW)).scalar_one()
            after = clock.now()
            samples.append((after - before, theirs - (before + after) // 2))
    _, offset = min(samples)
    return offset
