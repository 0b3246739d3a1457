"""What there is instead, where an address leads to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.errors import Rejected, StoreUnavailable
from bot.core.feature import sections
from bot.web import blocks
from bot.web.asked import asking
from bot.web.navigation import repository_of
from bot.web.subjects import MissingSubject

if TYPE_CHECKING:
    from aiohttp import web

    from bot.web.asked import Asked
    from bot.web.blocks import Block


async def find_alternatives(request: web.Request, code: str) -> list[Block]:
    """Return what capabilities have near an address that leads to nothing; nothing while the database cannot tell."""
    try:
        async with asking(request, ()) as asked:
            return await blocks.gather(asked.context.features, "missing", asked.tx, _subject(asked, code))
    except (Rejected, StoreUnavailable):
        return []


async def find_instead(request: web.Request, code: str) -> str | None:
    """Return the path that an address without a page of its own leads to, as the first capability has one."""
    async with asking(request, ()) as asked:
        for find in sections(asked.context.features, "instead"):
            path: str | None = await find(asked.tx, _subject(asked, code))
            if path:
                return path
    return None


def _subject(asked: Asked, code: str) -> MissingSubject:
    request = asked.request
    return MissingSubject(asked=asked, code=code, path=request.path, repo=repository_of(request))
