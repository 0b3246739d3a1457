"""issues: the issue, and the history of its labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.ingest.deliveries import record
from bot.ingest.tables import ISSUE, ISSUE_LABEL_EVENT

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.deliveries import Delivery

router = Router()


@router.register("issues")
async def issues(event: Delivery, tx: Transaction) -> None:
    """Record the issue; a deleted or transferred one leaves a tombstone."""
    record(tx, event, ISSUE, deleted=event.action in {"deleted", "transferred"})
    if event.action in {"labeled", "unlabeled"}:
        record(tx, event, ISSUE_LABEL_EVENT)
