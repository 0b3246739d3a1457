"""The views of the lists in the order of the OpenAPI document, and what they need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.collect import job_reads
from bot.ci.disabled.list_cache import BytesCache
from bot.ci.disabled.settings import DisabledSettings
from bot.ci.test_lists import lists_view, shards_view, suggestions_view
from bot.ci.test_results.tables import test

if TYPE_CHECKING:
    from aiohttp import web

    from bot.web.asked import Asked

VIEWS = (*lists_view.ENDPOINTS, suggestions_view.VIEW, shards_view.VIEW, shards_view.POSTED)


def setup(app: web.Application) -> None:
    """Add the cache of times."""
    app[shards_view.TIMES] = BytesCache()


async def has_suggestions(asked: Asked, repo: str) -> bool:
    """Whether suggestions are made, of tests that are known."""
    wanted = asked.settings.of(DisabledSettings).ci_disable == "suggest"
    return wanted and await job_reads.has_rows(asked, repo, test.c.repository_id)
