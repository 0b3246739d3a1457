"""ci_sweep: asks again for what was lost on the way: runs without a list of artifacts, fetches without a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.collect import keys
from bot.ci.collect.settings import CollectSettings
from bot.ci.collect.store import fetches
from bot.ci.collect.workspace import WORKSPACE

if TYPE_CHECKING:
    from bot.context import Context
    from bot.queue.tasks import Task

TASK = {"artifact": "collect", "log": "log"}  # kind of fetch -> kind of task


async def request_overdue(context: Context, _task: Task) -> None:
    """Enqueue what is overdue, and delete what killed processes left behind."""
    await context.resource(WORKSPACE).delete_left_folders()
    if not context.settings.of(CollectSettings).ci:
        return
    async with context.store.read() as tx:
        unlisted = await fetches.overdue_listings(tx)
        unfetched = await fetches.overdue_fetches(tx)
    async with context.store.transaction() as tx:
        for run in unlisted:
            tx.enqueue("artifacts", keys.run_key(*run))
        for repo, kind, object_id in unfetched:
            tx.enqueue(TASK[kind], keys.object_key(repo, object_id))
