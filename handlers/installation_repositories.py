"""installation_repositories: repositories added to or taken from an installation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.delivery import record, record_repository
from bot.domain.records import INSTALLATION

if TYPE_CHECKING:
    from bot.delivery import Delivery
    from bot.store import Transaction

router = Router()


@router.register("installation_repositories")
async def installation_repositories(event: Delivery, tx: Transaction) -> None:
    """Keep the installation as this event shows it. What could not be sent to a new repository may go now."""
    kept = record(tx, event, INSTALLATION)
    if event.action == "added" and kept["account_login"]:
        tx.enqueue("installed", kept["account_login"].casefold())
    for repository in event.data.get("repositories_added") or ():
        record_repository(tx, event, repository)
