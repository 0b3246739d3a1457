"""relay: a stored upstream delivery (key: its GUID) -> one recorded dispatch per backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot import relay
from bot.errors import GiveUp
from bot.tasks import subject

if TYPE_CHECKING:
    from bot.context import Context
    from bot.store.queue import Task

RELAYS = {"pull_request": relay.pull_request, "push": relay.push}


async def run(context: Context, task: Task) -> None:
    """Record the dispatches of one delivery."""
    async with context.store.transaction() as tx:
        tx.cause = task.key
        event, body = await subject.delivery(context, tx, task)
        try:
            await RELAYS[event](tx, context.settings, task.key, body)
        except (KeyError, TypeError, AttributeError) as error:
            raise GiveUp(f"the {event} event lacks what a dispatch needs: {error!r}") from error
