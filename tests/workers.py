"""How does a test have several processes' worth of bots on one database? Each with a context of its own."""

from __future__ import annotations

import asyncio
import contextlib

from bot.app import make_context, make_worker
from tests.process import PATIENCE

NEVER = 3600.0  # seconds between looks at the database: whoever works within a test was rung


@contextlib.asynccontextmanager
async def at_work(settings, clock, *, poll=NEVER):
    """Another bot whose worker runs; stopped as on SIGTERM."""
    async with make_context(settings, clock=clock) as context:
        worker = make_worker(context, poll=poll)
        working = asyncio.create_task(worker.run())
        try:
            yield context
        finally:
            worker.stop()
            await working


async def eventually(look, what):
    """Return what `look` finds once that is true: others are at work."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not (found := await look()):  # noqa: ASYNC110 - the others tell nobody
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"waited {PATIENCE:.0f} s for {what}") from None
    return found
