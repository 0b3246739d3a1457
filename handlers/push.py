"""push: commits that reached a branch or tag; a row each, nothing overwrites anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.delivery import record
from bot.domain.records import PUSH

if TYPE_CHECKING:
    from bot.delivery import Delivery
    from bot.store import Transaction

router = Router()


@router.register("push")
async def push(event: Delivery, tx: Transaction) -> None:
    """Keep the push; it may have changed the allowlist's own file."""
    record(tx, event, PUSH)
    tx.enqueue("allowlist", "")
