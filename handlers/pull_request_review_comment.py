"""pull_request_review_comment: comments on a pull request's lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.ingest.deliveries import record
from bot.ingest.tables import PULL_REVIEW_COMMENT

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.deliveries import Delivery

router = Router()


@router.register("pull_request_review_comment")
async def pull_request_review_comment(event: Delivery, tx: Transaction) -> None:
    """Record the comment; a deleted one leaves a tombstone."""
    record(tx, event, PULL_REVIEW_COMMENT, deleted=event.action == "deleted")
