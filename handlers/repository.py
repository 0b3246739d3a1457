"""repository: names, visibility and life of a repository; its id never changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.delivery import record
from bot.domain.records import REPOSITORY

if TYPE_CHECKING:
    from bot.delivery import Delivery
    from bot.store import Transaction

router = Router()


@router.register("repository")
async def repository(event: Delivery, tx: Transaction) -> None:
    """Keep the repository; a deleted one keeps a tombstone."""
    record(tx, event, REPOSITORY, deleted=event.action == "deleted")
