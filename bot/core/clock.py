"""Time and waiting: the only reader of the machine's clock."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

JITTER = 60_000  # milliseconds that the clocks of processes may differ without counting as wrong


class Clock(Protocol):
    """Time as the bot sees it; tests pass their own."""

    def now(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for that many seconds of this clock's time."""
        ...


class SystemClock:
    """The machine's own time."""

    def now(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Wait in real time."""
        await asyncio.sleep(seconds)
