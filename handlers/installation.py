"""installation: where the App is installed, with what permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.ingest.deliveries import record, record_repository
from bot.ingest.tables import INSTALLATION

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.deliveries import Delivery

OPENING = frozenset({"created", "unsuspend", "new_permissions_accepted"})

router = Router()


@router.register("installation")
async def installation(event: Delivery, tx: Transaction) -> None:
    """Record the installation; a deleted one leaves a tombstone. What could not be sent there may be sent now."""
    values = record(tx, event, INSTALLATION, deleted=event.action == "deleted")
    if event.action in OPENING and values["account_login"]:
        tx.enqueue("installed", values["account_login"].casefold())
    for repository in event.data.get("repositories") or ():
        record_repository(tx, event, repository)
