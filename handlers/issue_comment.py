"""issue_comment: comments on issues and pull requests, and the commands people give in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gidgethub.routing import Router

from bot.ingest.deliveries import record
from bot.ingest.tables import ISSUE_COMMENT
from bot.oot.commands import syntax

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.deliveries import Delivery

router = Router()


@router.register("issue_comment")
async def issue_comment(event: Delivery, tx: Transaction) -> None:
    """Record the comment; a deleted one leaves a tombstone. A new one may hold commands.

    Edits are never read for commands: the editor need not be the author.
    """
    comment = record(tx, event, ISSUE_COMMENT, deleted=event.action == "deleted")
    if (
        event.action == "created"
        and _by_a_person(event.data)
        and syntax.may_hold_command(comment["body"] or "")
    ):
        tx.enqueue("command", event.delivery_id)


def _by_a_person(body: dict[str, Any]) -> bool:
    """Whether a person wrote it: commands quoted by Apps, ours included, do not count."""
    issue, user = body.get("issue"), body["comment"].get("user")
    return isinstance(issue, dict) and isinstance(user, dict) and user.get("type") == "User"
