"""issues: the issue as it is, and the history of its labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.delivery import record
from bot.domain.records import ISSUE, ISSUE_LABEL_EVENT

if TYPE_CHECKING:
    from bot.delivery import Delivery
    from bot.store import Transaction

router = Router()


@router.register("issues")
async def issues(event: Delivery, tx: Transaction) -> None:
    """Keep the issue; a deleted or transferred one keeps a tombstone here."""
    record(tx, event, ISSUE, deleted=event.action in {"deleted", "transferred"})
    if event.action in {"labeled", "unlabeled"}:
        record(tx, event, ISSUE_LABEL_EVENT)
