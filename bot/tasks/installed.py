"""installed: the App may reach more of an account (key: its login): what could not be sent or written there is now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot import relay
from bot.tasks import publish

if TYPE_CHECKING:
    from bot.context import Context
    from bot.store.queue import Task

log = structlog.get_logger("bot.tasks.installed")


async def run(context: Context, task: Task) -> None:
    """Dispatch once more what is still awaited on the heads of open pull requests, and look at the account's own."""
    async with context.store.transaction() as tx:
        again = await relay.installed(tx, task.key)
        await publish.all_open(tx, context.settings, account=task.key)
    log.info("installed", account=task.key, dispatched_afresh=again)
