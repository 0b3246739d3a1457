"""issue_comment: comments on issues and pull requests, and the commands people give in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gidgethub.routing import Router

from bot.delivery import record
from bot.domain import commands
from bot.domain.records import ISSUE_COMMENT

if TYPE_CHECKING:
    from bot.delivery import Delivery
    from bot.store import Transaction

router = Router()


@router.register("issue_comment")
async def issue_comment(event: Delivery, tx: Transaction) -> None:
    """Keep the comment; a deleted one keeps a tombstone. A new one on a pull request may hold commands.

    Edits are never read for commands: who edits need not be who wrote.
    """
    kept = record(tx, event, ISSUE_COMMENT, deleted=event.action == "deleted")
    if event.action == "created" and _by_a_person(event.data) and commands.may_hold(kept["body"] or ""):
        tx.enqueue("command", event.delivery_id)


def _by_a_person(body: dict[str, Any]) -> bool:
    """Whether a person said it, on a pull request: what Apps quote, ours included, is no command."""
    issue, comment = body.get("issue"), body["comment"]
    user = comment.get("user")
    on_pull = isinstance(issue, dict) and isinstance(issue.get("pull_request"), dict)
    return on_pull and isinstance(user, dict) and user.get("type") == "User"
