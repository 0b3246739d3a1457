"""check_run: check runs of everybody's, and the re-run button of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.delivery import record
from bot.domain.records import CHECK_RUN

if TYPE_CHECKING:
    from bot.delivery import Delivery
    from bot.store import Transaction

router = Router()


@router.register("check_run")
async def check_run(event: Delivery, tx: Transaction) -> None:
    """Keep the check run; a button pressed on it may be a wish for a re-run."""
    record(tx, event, CHECK_RUN)
    if event.action in {"rerequested", "requested_action"}:
        tx.enqueue("rerun", event.delivery_id)
