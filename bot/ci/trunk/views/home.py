"""GET /hud and /hud/{owner}/{repo}: redirects to the grid of a default branch; what there is to show of one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from aiohttp import web

from bot.ci.collect.store import runs
from bot.ci.trunk import reading
from bot.ci.trunk.tables import ci_line, ci_runner_day
from bot.ci.trunk.views.grid import address
from bot.core.errors import Rejected
from bot.web import access, parameters
from bot.web.app_keys import CONTEXT
from bot.web.html import page
from bot.web.refusals import UNKNOWN_BRANCH
from bot.web.view import Endpoint

if TYPE_CHECKING:
    import sqlalchemy as sa

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.web.access import Hidden
    from bot.web.asked import Asked


async def find_home(tx: Transaction, settings: Settings, hidden: Hidden) -> str | None:
    """Return the grid of the first upstream's default branch, once pushes to it are known."""
    for repo in settings.upstream_repo:
        with contextlib.suppress(Rejected):
            branch = await reading.find_branch(tx, hidden, repo, "")
            if branch.name and (await reading.newest_commits(tx, branch, before=None, limit=1))[0]:
                return address(branch)
    return None


@page
async def redirect_to_first(request: web.Request) -> web.Response:
    """Redirect to the grid of the first upstream that has one."""
    context = request.app[CONTEXT]
    async with context.store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        path = await find_home(tx, context.settings, hidden)
    repo = context.settings.upstream_repo[0]
    if path is None and hidden.has(repo):
        raise Rejected(404, "not_found", "there is nothing here that may be shown")
    return web.Response(status=302, headers={"Location": path or f"/hud/{repo}"})


@page
async def redirect_to_default(request: web.Request) -> web.Response:
    """Redirect to the default branch of a repository, with the query."""
    repo = parameters.repo(request)
    async with request.app[CONTEXT].store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        branch = await reading.find_branch(tx, hidden, repo, "")
    if not branch.name:
        raise UNKNOWN_BRANCH.because(f"GitHub has not said what the default branch of {repo} is")
    asked = parameters.query(request.query)
    return web.Response(status=302, headers={"Location": address(branch) + (f"?{asked}" if asked else "")})


async def has_grid(asked: Asked, repo: str) -> bool:
    """Whether pushes to the default branch of a repository are known."""
    with contextlib.suppress(Rejected):
        branch = await reading.find_branch(asked.tx, asked.hidden, repo, "")
        return bool(branch.name and (await reading.newest_commits(asked.tx, branch, before=None, limit=1))[0])
    return False


async def has_runners(asked: Asked, repo: str) -> bool:
    """Whether jobs of a repository were counted by their runner."""
    return await _has_rows(asked, repo, ci_runner_day.c.repository_id)


async def has_days(asked: Asked, repo: str) -> bool:
    """Whether commits of a repository's branches were counted."""
    return await _has_rows(asked, repo, ci_line.c.repository_id)


async def _has_rows(asked: Asked, repo: str, repository_id: sa.Column[int]) -> bool:
    with contextlib.suppress(Rejected):
        branch = await reading.find_branch(asked.tx, asked.hidden, repo, "")
        return await runs.has_rows(asked.tx, repository_id, {branch.repository["repository_id"]})
    return False


ENDPOINTS = (
    Endpoint(web.get("/hud", redirect_to_first)),
    Endpoint(web.get("/hud/{owner}/{repo}", redirect_to_default)),
)
