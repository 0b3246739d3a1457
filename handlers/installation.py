"""installation: where the App is installed, with what permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.delivery import record, record_repository
from bot.domain.records import INSTALLATION

if TYPE_CHECKING:
    from bot.delivery import Delivery
    from bot.store import Transaction

OPENING = frozenset({"created", "unsuspend", "new_permissions_accepted"})

router = Router()


@router.register("installation")
async def installation(event: Delivery, tx: Transaction) -> None:
    """Keep the installation; a deleted one keeps a tombstone. What could not be sent there may go now."""
    kept = record(tx, event, INSTALLATION, deleted=event.action == "deleted")
    if event.action in OPENING and kept["account_login"]:
        tx.enqueue("installed", kept["account_login"].casefold())
    for repository in event.data.get("repositories") or ():
        record_repository(tx, event, repository)
