"""repository: name, visibility and state of a repository; its id never changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.ingest.deliveries import record
from bot.ingest.tables import REPOSITORY

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.deliveries import Delivery

router = Router()


@router.register("repository")
async def repository(event: Delivery, tx: Transaction) -> None:
    """Record the repository; a deleted one leaves a tombstone."""
    record(tx, event, REPOSITORY, deleted=event.action == "deleted")
