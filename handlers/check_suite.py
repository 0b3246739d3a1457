"""check_suite: the check suites of all Apps, and `Re-run all checks` of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.ingest.deliveries import record
from bot.ingest.tables import CHECK_SUITE

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.deliveries import Delivery

router = Router()


@router.register("check_suite")
async def check_suite(event: Delivery, tx: Transaction) -> None:
    """Record the suite; when re-requested, its failed backends are run again."""
    record(tx, event, CHECK_SUITE)
    if event.action == "rerequested":
        tx.enqueue("rerun", event.delivery_id)
