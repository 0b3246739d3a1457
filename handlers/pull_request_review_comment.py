"""pull_request_review_comment: comments on a pull request's lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.delivery import record
from bot.domain.records import PULL_REVIEW_COMMENT

if TYPE_CHECKING:
    from bot.delivery import Delivery
    from bot.store import Transaction

router = Router()


@router.register("pull_request_review_comment")
async def pull_request_review_comment(event: Delivery, tx: Transaction) -> None:
    """Keep the comment; a deleted one keeps a tombstone."""
    record(tx, event, PULL_REVIEW_COMMENT, deleted=event.action == "deleted")
