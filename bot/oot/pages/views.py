"""The views of results in the order of the OpenAPI document, and what their templates use."""

from __future__ import annotations

from aiohttp import web

from bot.core.feature import load_each
from bot.oot.pages import (
    allowlist_view,
    backend_jobs,
    backend_page,
    commit_page,
    crcr,
    dispatches_view,
    levels,
    metrics_page,
    overview,
    pull_page,
    template_filters,
)
from bot.oot.statistics.day_sums_cache import DAY_SUMS, DaySumsCache
from bot.web import html
from bot.web.asked import asking
from bot.web.html import page
from bot.web.view import Endpoint


@page
async def redirect_home(request: web.Request) -> web.Response:
    """Redirect to the page that a feature offers, else to the health page."""
    async with asking(request, ()) as asked:
        for find in load_each(asked.context.features, "home"):
            if path := await find(asked.tx, asked.settings, asked.hidden):
                return web.Response(status=302, headers={"Location": path})
    return web.Response(status=302, headers={"Location": "/oot"})


VIEWS = (
    Endpoint(web.get("/", redirect_home)),
    overview.VIEW,
    backend_jobs.VIEW,
    backend_jobs.CSV,
    pull_page.VIEW,
    commit_page.VIEW,
    allowlist_view.VIEW,
    levels.VIEW,
    metrics_page.VIEW,
    dispatches_view.VIEW,
    backend_page.VIEW,
    pull_page.PAGE,
    commit_page.PAGE,
    *crcr.ENDPOINTS,
)


def setup(app: web.Application) -> None:
    """Add what the templates use, and the cache of sums over days."""
    html.add_names(app, filters=template_filters.FILTERS, values=template_filters.VALUES)
    app[DAY_SUMS] = DaySumsCache()
