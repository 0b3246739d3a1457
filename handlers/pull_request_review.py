"""pull_request_review: reviews of pull requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.delivery import record
from bot.domain.records import PULL_REVIEW

if TYPE_CHECKING:
    from bot.delivery import Delivery
    from bot.store import Transaction

router = Router()


@router.register("pull_request_review")
async def pull_request_review(event: Delivery, tx: Transaction) -> None:
    """Keep the review."""
    record(tx, event, PULL_REVIEW)
