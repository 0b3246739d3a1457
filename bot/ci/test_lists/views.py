"""The views of the lists in the order of the OpenAPI document, and what they need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.disabled.list_cache import BytesCache
from bot.ci.disabled.settings import DisabledSettings
from bot.ci.test_lists import lists_view, shards_view, suggestions_view
from bot.web import html
from bot.web.app_keys import CONTEXT

if TYPE_CHECKING:
    from aiohttp import web

VIEWS = (*lists_view.ENDPOINTS, suggestions_view.VIEW, shards_view.VIEW, shards_view.POSTED)


def setup(app: web.Application) -> None:
    """Add the tab of suggestions, where there are some, and the cache of times."""
    if app[CONTEXT].settings.of(DisabledSettings).ci_disable == "suggest":
        html.add_tab(app, "tests", "Suggestions", "/disabled/suggestions", place=11)
    app[shards_view.TIMES] = BytesCache()
