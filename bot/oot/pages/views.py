"""The views of results in the order of the OpenAPI document, and what their templates use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from bot.core.feature import load_each
from bot.oot.allowlist import rows as allowlists
from bot.oot.pages import (
    allowlist_view,
    backend_jobs,
    backend_page,
    commands_page,
    commit_page,
    crcr,
    dispatches_view,
    levels,
    metrics_page,
    overview,
    ping_page,
    pull_list,
    pull_page,
    pull_rows,
    repository_page,
    search_page,
    template_filters,
)
from bot.oot.statistics.day_sums_cache import DAY_SUMS, DaySumsCache
from bot.web import html
from bot.web.asked import asking
from bot.web.html import page
from bot.web.view import Endpoint

if TYPE_CHECKING:
    from bot.web.asked import Asked


@page
async def redirect_home(request: web.Request) -> web.Response:
    """Redirect to the page that a feature offers, else to the health page."""
    async with asking(request, ()) as asked:
        for find in load_each(asked.context.features, "home"):
            if path := await find(asked.tx, asked.settings, asked.hidden):
                return web.Response(status=302, headers={"Location": path})
    return web.Response(status=302, headers={"Location": "/oot"})


async def has_pulls(asked: Asked, repo: str) -> bool:
    """Whether pull requests of a repository are known."""
    return not asked.hidden.has(repo) and await pull_rows.has_pulls(asked.tx, repo)


async def is_backend(asked: Asked, repo: str) -> bool:
    """Whether a repository is on the allowlist, and what that says may be shown."""
    allowlist = await allowlists.in_force(asked.tx)
    listed = allowlist is not None and allowlist.find(repo) is not None
    return listed and not all(map(asked.hidden.has, asked.settings.upstream_repo))


VIEWS = (
    Endpoint(web.get("/", redirect_home)),
    overview.VIEW,
    backend_jobs.VIEW,
    backend_jobs.CSV,
    ping_page.VIEW,
    pull_page.VIEW,
    commit_page.VIEW,
    allowlist_view.VIEW,
    levels.VIEW,
    metrics_page.VIEW,
    dispatches_view.VIEW,
    commands_page.PAGE,
    backend_page.VIEW,
    pull_list.VIEW,
    search_page.VIEW,
    search_page.PAGE,
    pull_page.PAGE,
    commit_page.PAGE,
    repository_page.VIEW,
    *crcr.ENDPOINTS,
)


def setup(app: web.Application) -> None:
    """Add what the templates use, and the cache of sums over days."""
    html.add_names(app, filters=template_filters.FILTERS, values=template_filters.VALUES)
    app[DAY_SUMS] = DaySumsCache()
