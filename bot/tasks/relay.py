"""relay: a stored upstream delivery (key: its GUID) -> one recorded dispatch per backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from bot import relay
from bot.errors import GiveUp
from bot.store import inbox

if TYPE_CHECKING:
    from bot.context import Context
    from bot.store.queue import Task


async def run(context: Context, task: Task) -> None:
    """Record the dispatches of one delivery."""
    async with context.store.transaction() as tx:
        tx.cause = task.key
        stored = await inbox.find(tx, task.key)
        if stored is None:
            raise GiveUp(f"delivery {task.key} is not stored any more")
        try:
            await relay.pull_request(tx, context.settings, task.key, msgspec.json.decode(stored["body"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise GiveUp(f"the pull request event lacks what a dispatch needs: {error!r}") from error
