"""installation_repositories: repositories added to or removed from an installation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.ingest.deliveries import record, record_repository
from bot.ingest.tables import INSTALLATION

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.deliveries import Delivery

router = Router()


@router.register("installation_repositories")
async def installation_repositories(event: Delivery, tx: Transaction) -> None:
    """Record the installation. What could not be sent to a new repository may be sent now."""
    values = record(tx, event, INSTALLATION)
    if event.action == "added" and values["account_login"]:
        tx.enqueue("installed", values["account_login"].casefold())
    for repository in event.data.get("repositories_added") or ():
        record_repository(tx, event, repository)
