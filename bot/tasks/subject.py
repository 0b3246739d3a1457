"""What is a task about? A pull request, or a delivery and what that said: its key names it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot import upstream
from bot.domain import pull_key
from bot.errors import GiveUp
from bot.store import inbox

if TYPE_CHECKING:
    from bot.context import Context
    from bot.store import Transaction
    from bot.store.queue import Task


async def delivery(context: Context, tx: Transaction, task: Task) -> tuple[str, dict[str, Any]]:
    """Return the event and the body of a task's delivery; raises GiveUp when it is not stored any more."""
    stored = await inbox.find(tx, task.key)
    if stored is None:
        raise GiveUp(f"delivery {task.key} is not stored any more")
    return stored["event"], upstream.read(context.settings, stored["body"])


def pull(task: Task) -> tuple[str, int]:
    """Return repository and number of a task's pull request; raises GiveUp when its key names none."""
    try:
        return pull_key.parse(task.key)
    except ValueError as error:
        raise GiveUp(str(error)) from error
