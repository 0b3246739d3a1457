"""installation: where the App is installed, with what permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.delivery import record
from bot.domain.records import INSTALLATION

if TYPE_CHECKING:
    from bot.delivery import Delivery
    from bot.store import Transaction

router = Router()


@router.register("installation")
async def installation(event: Delivery, tx: Transaction) -> None:
    """Keep the installation; a deleted one keeps a tombstone."""
    record(tx, event, INSTALLATION, deleted=event.action == "deleted")
