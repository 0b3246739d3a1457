"""What did the delivery say that a task is about? Its key is the delivery's GUID."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.domain.reading import decode
from bot.errors import GiveUp
from bot.store import inbox

if TYPE_CHECKING:
    from bot.store import Transaction
    from bot.store.queue import Task


async def by_delivery(tx: Transaction, task: Task) -> tuple[str, dict[str, Any]]:
    """Return the event and the body of a task's delivery; raises GiveUp when it is not stored any more."""
    stored = await inbox.find(tx, task.key)
    if stored is None:
        raise GiveUp(f"delivery {task.key} is not stored any more")
    return stored["event"], decode(stored["body"])
