"""What there is instead, where an address leads to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.errors import Rejected, StoreUnavailable
from bot.web import blocks
from bot.web.asked import asking
from bot.web.blocks import MissingSubject
from bot.web.navigation import repository_of

if TYPE_CHECKING:
    from aiohttp import web

    from bot.web.blocks import Block


async def find_alternatives(request: web.Request, code: str) -> list[Block]:
    """Return what capabilities have near an address that leads to nothing; nothing while the database cannot tell."""
    try:
        async with asking(request, ()) as asked:
            subject = MissingSubject(asked=asked, code=code, path=request.path, repo=repository_of(request))
            return await blocks.gather(asked.context.features, "missing", asked.tx, subject)
    except (Rejected, StoreUnavailable):
        return []
