"""How do reports that come at the same moment share one transaction? While one group is committed, the next gathers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog
from aiohttp import web

from bot import metrics, results
from bot.errors import StoreUnavailable
from bot.store import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.results import Answer
    from bot.trust import Given

log = structlog.get_logger("bot.reports")
WITHIN = 8.0  # seconds until a report is answered, whatever those before it wait for
MOST = 500  # reports that others may join


class Taking:
    """Takes reports for everybody who serves them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._turn = asyncio.Lock()
        self._gathering: list[Given] = []
        self._group: asyncio.Task[list[Answer]] | None = None

    async def take(self, given: Sequence[Given]) -> list[Answer]:
        """Take reports; everything is stored before the answers to them are returned. Raises StoreUnavailable."""
        if self._group is None or len(self._gathering) >= MOST:
            self._gathering = []
            self._group = asyncio.create_task(self._take_together(self._gathering))
            self._group.add_done_callback(_looked_at)
        gathered, group, start = self._gathering, self._group, len(self._gathering)
        gathered.extend(given)
        await asyncio.wait([group], timeout=WITHIN)
        if not group.done():
            raise StoreUnavailable(f"the database has kept others waiting for over {WITHIN:g} s")
        failure = group.exception()
        if failure is None or isinstance(failure, StoreUnavailable) or len(gathered) == len(given):
            return group.result()[start : start + len(given)]
        return await self._write(given)  # somebody's report breaks something: it shall be only theirs

    async def _take_together(self, gathered: list[Given]) -> list[Answer]:
        async with self._turn:
            if self._gathering is gathered:
                self._group = None
            return await self._write(gathered)

    async def _write(self, given: Sequence[Given]) -> list[Answer]:
        async with self._context.store.transaction(patience=PATIENCE) as tx:
            taken = await results.accept(tx, self._context.settings, given)
        for delivery, name in taken.contradictions:
            metrics.MISMATCHES.labels(name).inc()
            log.warning("a report contradicts its token or dispatch", field=name, delivery=delivery[:100])
        return taken.answers


def _looked_at(group: asyncio.Task[list[Answer]]) -> None:
    """Look at how it went, though nobody may be left who waits for it."""
    if not group.cancelled():
        group.exception()


TAKING: web.AppKey[Taking] = web.AppKey("taking", Taking)
