"""check_run: the check runs of all Apps, and the re-run button of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.ingest.deliveries import record
from bot.ingest.tables import CHECK_RUN

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.deliveries import Delivery

router = Router()


@router.register("check_run")
async def check_run(event: Delivery, tx: Transaction) -> None:
    """Record the check run; a button pressed on it may request a re-run."""
    record(tx, event, CHECK_RUN)
    if event.action in {"rerequested", "requested_action"}:
        tx.enqueue("rerun", event.delivery_id)
