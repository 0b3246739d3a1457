"""How does a test hold somebody in the middle of a call? A clock by which one hangs until the test lets go."""

from __future__ import annotations

import asyncio

from tests import harness

HANGS = 3600.0  # seconds: the mark of a call that ends when the test lets it


class HoldingClock(harness.ManualClock):
    """Whoever hangs does so until the test lets go; everybody else's time passes as it sleeps."""

    def __init__(self):
        super().__init__()
        self.hanging, self.let_go = asyncio.Event(), asyncio.Event()

    async def sleep(self, seconds):
        if seconds != HANGS:
            return await super().sleep(seconds)
        self.hanging.set()
        return await self.let_go.wait()
