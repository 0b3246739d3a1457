"""The views of results in the order of the OpenAPI document, the home of the site, and the page of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from bot.core.feature import load_each
from bot.oot.allowlist import versions as allowlists
from bot.oot.commands.syntax import describe_commands
from bot.oot.statistics.daily_sums import DAY_SUMS, DaySumsCache
from bot.pages.backends import allowlist as allowlist_view
from bot.pages.backends import (
    backend,
    backend_jobs,
    crcr,
    dispatches,
    levels,
    metrics,
    overview,
    template_filters,
)
from bot.pages.pulls import commit, pull_list, pull_page, pull_rows
from bot.pages.site import repository, search
from bot.web import html
from bot.web.access import CONTEXT
from bot.web.html import page, render
from bot.web.parameters import open_query
from bot.web.view import Endpoint

if TYPE_CHECKING:
    from aiohttp.web import Request, Response

    from bot.web.parameters import Query


@page
async def show_commands(request: Request) -> Response:
    """Show the commands."""
    return render(
        request, "commands.html", json_url="", commands=describe_commands(request.app[CONTEXT].features)
    )


COMMANDS_PAGE = Endpoint(web.get("/oot/commands", show_commands))


@page
async def redirect_home(request: web.Request) -> web.Response:
    """Redirect to the page that a feature offers; otherwise to the health page."""
    async with open_query(request, ()) as query:
        for find in load_each(query.context.features, "home"):
            if path := await find(query.tx, query.settings, query.hidden):
                return web.Response(status=302, headers={"Location": path})
    return web.Response(status=302, headers={"Location": "/oot"})


async def has_pulls(query: Query, repo: str) -> bool:
    """Whether pull requests of a repository are known."""
    return not query.hidden.has(repo) and await pull_rows.has_pulls(query.tx, repo)


async def is_backend(query: Query, repo: str) -> bool:
    """Whether a repository is on the allowlist, and what that says may be shown."""
    allowlist = await allowlists.read_in_force(query.tx)
    listed = allowlist is not None and allowlist.find(repo) is not None
    return listed and not all(map(query.hidden.has, query.settings.upstream_repo))


VIEWS = (
    Endpoint(web.get("/", redirect_home)),
    overview.VIEW,
    backend_jobs.VIEW,
    backend_jobs.CSV,
    dispatches.PING_VIEW,
    pull_page.VIEW,
    commit.VIEW,
    allowlist_view.VIEW,
    levels.VIEW,
    metrics.VIEW,
    dispatches.DISPATCHES_VIEW,
    COMMANDS_PAGE,
    backend.VIEW,
    pull_list.VIEW,
    search.VIEW,
    search.PAGE,
    pull_page.PAGE,
    commit.PAGE,
    repository.VIEW,
    *crcr.ENDPOINTS,
)


def setup(app: web.Application) -> None:
    """Add the names that templates use, and the cache of daily sums."""
    html.add_names(app, filters=template_filters.FILTERS, values=template_filters.VALUES)
    app[DAY_SUMS] = DaySumsCache()
