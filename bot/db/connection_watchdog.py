"""A watchdog for PostgreSQL connections: drops one that has stopped answering.

A paused server, or a network that drops every packet, would keep the driver waiting for hours, even for the
cancellation of a statement. Dropping the connection makes whatever waits for it fail. Every answer resets the
watchdog: long work is not silence.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

# in seconds
CONNECT_TIMEOUT = 5.0
PING_TIMEOUT = 2.0  # for an idle connection to prove that it still works
REQUEST_TIMEOUT = 5.0  # without an answer while a request waits for ours: GitHub waits 10
BACKGROUND_TIMEOUT = 120.0  # without an answer in background work: a single statement may take long
# of each timeout: a process that was frozen itself finds answers that came meanwhile before it drops the connection
CHECKS = 5


class Watchdog:
    """Drops one connection of the driver that stays silent."""

    def __init__(self, driver: Any, timeout: float) -> None:
        self.expired = False
        self._driver = driver
        self._interval = timeout / CHECKS
        self._silent_checks = 0
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._check)

    def answered(self) -> None:
        """Reset the time: the server has answered."""
        self._silent_checks = 0

    def stop(self) -> None:
        """Stop watching."""
        self._timer.cancel()

    def hang_up(self) -> None:
        """Drop the connection now: whatever waits for it fails."""
        self.stop()
        self.expired = True
        self._driver.terminate()

    def _check(self) -> None:
        self._silent_checks += 1
        if self._silent_checks < CHECKS:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._check)
        else:
            self.hang_up()


@contextlib.asynccontextmanager
async def connected(
    engine: AsyncEngine, answer_within: float
) -> AsyncIterator[tuple[AsyncConnection, Watchdog]]:
    """Yield a watched connection to PostgreSQL; raises TimeoutError after so many seconds without an answer."""
    watchdog: Watchdog | None = None
    try:
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(answer_within):
                conn = await stack.enter_async_context(engine.connect())
            watchdog = Watchdog((await conn.get_raw_connection()).driver_connection, answer_within)
            yield conn, watchdog
    except Exception as error:
        if watchdog is None and isinstance(error, TimeoutError):
            raise TimeoutError(f"no answer for {min(answer_within, CONNECT_TIMEOUT):g} s") from error
        if watchdog is not None and watchdog.expired:
            raise TimeoutError(f"no answer for {answer_within:g} s") from error
        raise
    finally:
        if watchdog is not None:
            watchdog.stop()
