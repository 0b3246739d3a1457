"""check_suite: check suites of everybody's, and `Re-run all checks` of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.delivery import record
from bot.domain.records import CHECK_SUITE

if TYPE_CHECKING:
    from bot.delivery import Delivery
    from bot.store import Transaction

router = Router()


@router.register("check_suite")
async def check_suite(event: Delivery, tx: Transaction) -> None:
    """Keep the suite; re-requested, its failed backends are run again."""
    record(tx, event, CHECK_SUITE)
    if event.action == "rerequested":
        tx.enqueue("rerun", event.delivery_id)
