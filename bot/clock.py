"""What time is it, and how does one wait? The only reader of the machine's clock."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

JITTER = 60_000  # milliseconds by which the clocks of processes may differ and nobody calls them wrong


class Clock(Protocol):
    """Time as the bot sees it; tests bring their own."""

    def now(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds of this clock's time."""
        ...


class SystemClock:
    """The machine's own time."""

    def now(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Wait in real time."""
        await asyncio.sleep(seconds)
