"""Counting changed days at once, whenever their tasks are due."""

from __future__ import annotations

import sqlalchemy as sa

from bot.core.feature import load
from bot.queue import tasks
from bot.queue.tasks import task

KINDS = {"sum": "bot.queue.sums:recount_place", "trunk_changes": "bot.jobs.column_changes:record_changes"}


async def count_changed(context):
    """Run what waits of these tasks, and what they request, as a worker does."""
    while True:
        async with context.store.transaction() as tx:
            waiting = (task.c.state == "waiting", task.c.kind.in_(KINDS))
            await tx.run(sa.update(task).where(*waiting).values(due_at=tx.now))
            claimed = [
                one
                for background in (False, True)
                for one in await tasks.claim(tx, owner="test", limit=100, kinds=KINDS, background=background)
            ]
        if not claimed:
            return
        for one in claimed:
            await load(KINDS[one.kind])(context, one)
        async with context.store.transaction() as tx:
            await tasks.finish(tx, claimed)
