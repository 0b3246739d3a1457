"""pull: deliveries are taken out of GitHub's log every few seconds, where no webhook can reach us.

Reads back to the first page with nothing new on it; what came late to the log is found by the sweep that goes on
every ten minutes (see redeliver).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from bot.tasks import delivery_log

if TYPE_CHECKING:
    from bot.context import Context
    from bot.store.queue import Task


async def run(context: Context, _task: Task) -> None:
    """Take what is new in the log of each App; nothing where deliveries come by webhook."""
    if not context.settings.pulls:
        return
    for app in delivery_log.apps(context):
        pages = delivery_log.unheard(
            context, app, since=delivery_log.horizon(context), until=context.clock.now() + 1
        )
        async with contextlib.aclosing(pages) as unheard:
            async for page in unheard:
                for row in reversed(page):
                    await delivery_log.take(context, app, row)
                if not page:
                    break
