"""rollup: the days whose rows have changed are counted and kept, so that pages need not look at the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.store import rollup

if TYPE_CHECKING:
    from bot.context import Context
    from bot.store.queue import Task

BATCH = 20  # days counted at a time


async def run(context: Context, _task: Task) -> None:
    """Write every stale day anew, the oldest first; one that changes meanwhile stays stale until the next run."""
    while True:
        async with context.store.read() as tx:
            stale = await rollup.stale_days(tx, limit=BATCH)
            found = await rollup.count(tx, list(stale))
        if not stale:
            return
        written = 0
        async with context.store.transaction() as tx:
            for place, mark in sorted(stale.items()):
                mine = [one for one in found if (one.day, one.key) == place]
                written += await rollup.write(tx, place, mark, mine)
        if not written:  # they change all the time
            return
