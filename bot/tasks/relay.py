"""relay: a stored upstream delivery (key: its GUID) -> one recorded dispatch per backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot import relay
from bot.domain.reading import decode
from bot.errors import GiveUp
from bot.store import inbox

if TYPE_CHECKING:
    from bot.context import Context
    from bot.store.queue import Task

RELAYS = {"pull_request": relay.pull_request, "push": relay.push}


async def run(context: Context, task: Task) -> None:
    """Record the dispatches of one delivery."""
    async with context.store.transaction() as tx:
        tx.cause = task.key
        stored = await inbox.find(tx, task.key)
        if stored is None:
            raise GiveUp(f"delivery {task.key} is not stored any more")
        to_be_told = RELAYS[stored["event"]]
        try:
            await to_be_told(tx, context.settings, task.key, decode(stored["body"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise GiveUp(f"the {stored['event']} event lacks what a dispatch needs: {error!r}") from error
