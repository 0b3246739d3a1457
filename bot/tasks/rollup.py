"""rollup: the days whose rows have changed are counted and kept, so that pages need not look at the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.store import rollup

if TYPE_CHECKING:
    from bot.context import Context
    from bot.store.queue import Task

BATCH = 20  # days counted at a time
MOST = 5_000  # in one run; the next goes on


async def run(context: Context, _task: Task) -> None:
    """Write every stale day anew; one that changes meanwhile stays stale until the next run."""
    async with context.store.read() as tx:
        stale = list((await rollup.stale_days(tx, limit=MOST)).items())
    for start in range(0, len(stale), BATCH):
        part = dict(stale[start : start + BATCH])
        async with context.store.read() as tx:
            part = {place: marks for place, marks in (await rollup.stale_days(tx)).items() if place in part}
            found = await rollup.count(tx, list(part))
        async with context.store.transaction() as tx:
            for place, marks in sorted(part.items()):
                await rollup.write(tx, place, marks, [one for one in found if (one.day, one.key) == place])
