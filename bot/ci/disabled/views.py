"""The views of what is disabled in the order of the OpenAPI document, and what they need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.disabled import issues_view, lists_view
from bot.ci.disabled.list_cache import SENT_LISTS, BytesCache

if TYPE_CHECKING:
    from aiohttp import web

VIEWS = (*lists_view.ENDPOINTS, issues_view.VIEW)


def setup(app: web.Application) -> None:
    """Add the cache of lists."""
    app[SENT_LISTS] = BytesCache()
