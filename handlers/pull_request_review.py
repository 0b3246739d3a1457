"""pull_request_review: reviews of pull requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.ingest.deliveries import record
from bot.ingest.tables import PULL_REVIEW

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.deliveries import Delivery

router = Router()


@router.register("pull_request_review")
async def pull_request_review(event: Delivery, tx: Transaction) -> None:
    """Record the review."""
    record(tx, event, PULL_REVIEW)
