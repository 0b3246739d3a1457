"""ping: GitHub says hello; the stored delivery is all there is to keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

if TYPE_CHECKING:
    from bot.delivery import Delivery
    from bot.store import Transaction

router = Router()


@router.register("ping")
async def ping(event: Delivery, tx: Transaction) -> None:
    """Nothing changes."""
