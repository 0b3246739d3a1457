"""pull: deliveries are taken out of GitHub's log every few seconds, where no webhook can reach us.

Reads back to the first page with nothing new on it. What comes late to the log is found every ten minutes, when it
is read as far back as the last time (see redeliver).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from bot.store import sweeps
from bot.tasks import delivery_log, redeliver

if TYPE_CHECKING:
    from bot.context import Context
    from bot.github import GitHubApp
    from bot.store.queue import Task

COMPLETE_EVERY = 10 * 60_000  # milliseconds


async def run(context: Context, _task: Task) -> None:
    """Take what is new in the log of each App; nothing where deliveries come by webhook."""
    if context.settings.pulls:
        await delivery_log.of_each_app(context, _take_new)


async def _take_new(context: Context, app: GitHubApp) -> None:
    async with context.store.read() as tx:
        last = await sweeps.get(tx, app.app_id, redeliver.NAME)
    if last and (last["finished_at"] or 0) > context.clock.now() - COMPLETE_EVERY:
        await _remember_newest(context, app)
        await redeliver.get_missing(context, app)
    else:
        await redeliver.sweep(context, app)


async def _remember_newest(context: Context, app: GitHubApp) -> None:
    pages = delivery_log.unheard(
        context, app, since=delivery_log.horizon(context), until=context.clock.now() + 1
    )
    async with contextlib.aclosing(pages) as unheard:
        async for page in unheard:
            if not await delivery_log.remember(context, app, page):
                return
