"""Queues: the exports that each sink wants, and the drivers and turns of a process."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.context import Resource
from bot.core.errors import Misconfigured
from bot.core.feature import load, load_each
from bot.sinks.settings import SinksSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from bot.context import Context
    from bot.core.feature import Features
    from bot.core.settings import Settings
    from bot.db.exports import Addition, Export, Shape
    from bot.sinks.driver import Driver
    from bot.sinks.settings import SinkSettings

# tasks that send or wait for their turn: the others of the background are to have theirs, however slow sinks are
TASKS_AT_ONCE = 3
TASKS_AT_ONCE_EACH = 2  # of one sink: one sends, one waits
TURN_PATIENCE = 5.0  # seconds that it waits


@dataclass(frozen=True, kw_only=True)
class ExportQueue:
    """The queue of an export's changes for a sink."""

    sink: SinkSettings
    export: Export
    shape: Shape
    additions: tuple[Addition, ...] = ()

    @property
    def what(self) -> str:
        """The export's name."""
        return self.export.name

    @property
    def task_key(self) -> str:
        """The key of the task that sends it."""
        return f"{self.sink.name}/{self.what}"


def export_queues(settings: Settings, features: Features) -> tuple[ExportQueue, ...]:
    """Return the queues of all sinks; raises Misconfigured where one wants an unknown export."""
    if problems := find_unwritable_exports(settings, features):
        raise Misconfigured(problems)
    exports = _all_exports(features)
    added = [addition for additions in load_each(features, "additions") for addition in additions]
    return tuple(
        ExportQueue(
            sink=sink,
            export=export,
            shape=export.shapes[sink.layout],
            additions=tuple(new for new in added if new.export == export.name and sink.layout in new.layouts),
        )
        for sink in settings.of(SinksSettings).sinks
        for export in exports
        if _wants_export(sink, export)
    )


def find_unwritable_exports(settings: Settings, features: Features) -> list[str]:
    """Return a sentence for each export that a sink wants and cannot get."""
    sinks = settings.of(SinksSettings).sinks
    exports = _all_exports(features) if sinks else ()
    return [problem for sink in sinks for problem in _unwritable_exports(sink, exports)]


class OpenSinks:
    """The queues, drivers and turns that the tasks of a process share."""

    def __init__(self, queues: tuple[ExportQueue, ...]) -> None:
        self.queues = {queue.task_key: queue for queue in queues}
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
        """Hold the turn of sending to a sink; yields False if others have it."""
        if self._present.total() >= TASKS_AT_ONCE or self._present[sink.name] >= TASKS_AT_ONCE_EACH:
            yield False
            return
        self._present[sink.name] += 1
        lock = self._locks[sink.name]
        try:
            async with asyncio.timeout(TURN_PATIENCE):
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


def _open_sinks(context: Context) -> OpenSinks:
    return OpenSinks(export_queues(context.settings, context.features))


SINKS: Resource[OpenSinks] = Resource("sinks", _open_sinks)


def _unwritable_exports(sink: SinkSettings, exports: Sequence[Export]) -> list[str]:
    fitting = [export for export in exports if sink.layout in export.shapes]
    known = {name for export in fitting for name in (export.name, export.group) if name}
    elsewhere = {name for export in exports for name in (export.name, export.group) if name}
    problems = []
    for name in sink.what:
        if name not in known:
            why = (
                f"has no shape in layout {sink.layout}"
                if name in elsewhere
                else "is not among what is stored"
            )
            problems.append(f"sink {sink.name}: what: {name!r} {why}; there are {', '.join(sorted(known))}")
    return problems


def _all_exports(features: Features) -> tuple[Export, ...]:
    return tuple(export for exports in load_each(features, "exports") for export in exports)


def _wants_export(sink: SinkSettings, export: Export) -> bool:
    return sink.layout in export.shapes and not {export.name, export.group}.isdisjoint(sink.what)
