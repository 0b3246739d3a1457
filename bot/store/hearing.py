"""What if PostgreSQL is there and says nothing: paused, or behind a network that swallows everything? We hang up.

The driver would wait for hours, also for the end of a statement that is cancelled. Once hung up on, it waits for
nothing, and whatever waits for it fails. Any answer begins the time anew: much work is no silence.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

CONNECT = 5.0  # seconds until PostgreSQL must have let us in
GREETING = 2.0  # seconds until it must have said that a connection is still there
ASKED = 5.0  # seconds of silence while somebody waits for our own answer: GitHub does for 10
ALONE = 120.0  # seconds of silence in work that nobody waits for: one statement may take long
LOOKS = 5  # into which the time is cut: who was frozen himself finds what was answered meanwhile before he hangs up


class Hearing:
    """Listens for the answers of one connection of the driver."""

    def __init__(self, driver: Any, silence: float) -> None:
        self.hung_up = False
        self._driver = driver
        self._every = silence / LOOKS
        self._silent = 0
        self._timer = asyncio.get_running_loop().call_later(self._every, self._look)

    def heard(self) -> None:
        """Say that something was answered."""
        self._silent = 0

    def end(self) -> None:
        """Listen no more."""
        self._timer.cancel()

    def _look(self) -> None:
        self._silent += 1
        if self._silent < LOOKS:
            self._timer = asyncio.get_running_loop().call_later(self._every, self._look)
        else:
            self.hung_up = True
            self._driver.terminate()


@contextlib.asynccontextmanager
async def connected(engine: AsyncEngine, silence: float) -> AsyncIterator[tuple[AsyncConnection, Hearing]]:
    """Give out a connection to PostgreSQL; raises TimeoutError after so many seconds without an answer."""
    hearing: Hearing | None = None
    try:
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(silence):
                conn = await stack.enter_async_context(engine.connect())
            hearing = Hearing((await conn.get_raw_connection()).driver_connection, silence)
            yield conn, hearing
    except Exception as error:
        if hearing is None and isinstance(error, TimeoutError):
            raise TimeoutError(f"no answer for {min(silence, CONNECT):g} s") from error
        if hearing is not None and hearing.hung_up:
            raise TimeoutError(f"no answer for {silence:g} s") from error
        raise
    finally:
        if hearing is not None:
            hearing.end()
