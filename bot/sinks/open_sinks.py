"""The sinks of a process: their lanes, their drivers once they are used, and who sends to which now."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from bot.core.feature import load
from bot.core.resources import Resource
from bot.sinks.lanes import lanes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bot.context import Context
    from bot.sinks.driver import Driver
    from bot.sinks.lanes import Lane
    from bot.sinks.settings import SinkSettings

# tasks that send or wait for their turn: the others of the background are to have theirs, however slow sinks are
AT_ONCE = 3
AT_ONCE_EACH = 2  # of one sink: one sends, one waits
PATIENCE = 5.0  # seconds that it waits


class OpenSinks:
    """What the tasks of sinks share in a process."""

    def __init__(self, found: tuple[Lane, ...]) -> None:
        self.lanes = {lane.task_key: lane for lane in found}
        self._drivers: dict[str, Driver] = {}
        self._present: Counter[str] = Counter()  # tasks that send or wait, by sink
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def driver(self, sink: SinkSettings) -> Driver:
        """Return the driver of a sink, made on first use."""
        if sink.name not in self._drivers:
            self._drivers[sink.name] = load(sink.kind.driver)(sink)
        return self._drivers[sink.name]

    @contextlib.asynccontextmanager
    async def turn(self, sink: SinkSettings) -> AsyncIterator[bool]:
        """Hold the turn of sending to a sink; yields False where it is not to be had for now."""
        if self._present.total() >= AT_ONCE or self._present[sink.name] >= AT_ONCE_EACH:
            yield False
            return
        self._present[sink.name] += 1
        lock = self._locks[sink.name]
        try:
            async with asyncio.timeout(PATIENCE):
                await lock.acquire()
        except TimeoutError:
            yield False
        else:
            try:
                yield True
            finally:
                lock.release()
        finally:
            self._present[sink.name] -= 1

    async def close(self) -> None:
        """Close all drivers."""
        while self._drivers:
            _, driver = self._drivers.popitem()
            await driver.close()


def _open(context: Context) -> OpenSinks:
    return OpenSinks(lanes(context.settings, context.features))


SINKS: Resource[OpenSinks] = Resource("sinks", _open)
