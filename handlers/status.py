"""status: commit statuses, which other CIs set. Only where the App asks for them: `ootbot init --statuses`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.providers.statuses import record_status

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.deliveries import Delivery

router = Router()


@router.register("status")
async def status(event: Delivery, tx: Transaction) -> None:
    """Record the status as a job of the commit."""
    record_status(tx, event)
