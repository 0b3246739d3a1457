"""ping: sent when a webhook is created; storing the delivery is all there is to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.deliveries import Delivery

router = Router()


@router.register("ping")
async def ping(event: Delivery, tx: Transaction) -> None:
    """Do nothing."""
