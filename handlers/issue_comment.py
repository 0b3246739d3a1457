"""issue_comment: comments on issues and pull requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.delivery import record
from bot.domain.records import ISSUE_COMMENT

if TYPE_CHECKING:
    from bot.delivery import Delivery
    from bot.store import Transaction

router = Router()


@router.register("issue_comment")
async def issue_comment(event: Delivery, tx: Transaction) -> None:
    """Keep the comment; a deleted one keeps a tombstone."""
    record(tx, event, ISSUE_COMMENT, deleted=event.action == "deleted")
