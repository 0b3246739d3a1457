"""GET /hud/{owner}/{repo}/{branch}: a branch commit by commit, with a column for every job."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from aiohttp import web

from bot.ci.trunk import branches, day_rows, grid, hud_filter, hud_view, reading, reruns, rows, suspects
from bot.ci.trunk.settings import TrunkSettings
from bot.core.errors import Rejected
from bot.core.links import web_url
from bot.web import access, blocks, parameters
from bot.web.app_keys import CONTEXT
from bot.web.blocks import CellSubject
from bot.web.html import page, render

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.ci.trunk.cells import Cell, Run
    from bot.ci.trunk.grid import Column, Line
    from bot.ci.trunk.hud_filter import Filter
    from bot.ci.trunk.reading import Branch
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.web.access import Hidden
    from bot.web.blocks import BlockLine

TEMPLATES = Path(__file__).parent / "templates"
RUNNING = 30  # seconds until a page on which something runs is reloaded
RUNS_MOST = 100  # of an open cell
SUSPECTS_MOST = 30  # of a broken job; its JSON has more
BRANCH_MOST = 255  # characters


@dataclass(frozen=True, kw_only=True)
class Opened:
    """An open cell."""

    line: Line
    column: Column
    cell: Cell
    runs: tuple[Run, ...]
    more: int
    beside: Mapping[str, Sequence[BlockLine]]  # what else is known of them, by their ids
    reruns: Mapping[str, str]  # pages of GitHub where they can be repeated, by their ids


async def home(tx: Transaction, settings: Settings, hidden: Hidden) -> str | None:
    """Return the grid of the first upstream's default branch, once pushes to it are known."""
    for repo in settings.upstream_repo:
        with contextlib.suppress(Rejected):
            branch = await reading.find(tx, hidden, repo, "")
            if branch.name and (await reading.newest(tx, branch, before=None, limit=1))[0]:
                return address(branch)
    return None


@page
async def first(request: web.Request) -> web.Response:
    """Redirect to the grid of the first upstream that has one."""
    context = request.app[CONTEXT]
    async with context.store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        path = await home(tx, context.settings, hidden)
    repo = context.settings.upstream_repo[0]
    if path is None and hidden.has(repo):
        raise Rejected(404, "not_found", "there is nothing here that may be shown")
    return web.Response(status=302, headers={"Location": path or f"/hud/{repo}"})


@page
async def default(request: web.Request) -> web.Response:
    """Redirect to the default branch of a repository."""
    repo = parameters.repo(request)
    async with request.app[CONTEXT].store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        branch = await reading.find(tx, hidden, repo, "")
    if not branch.name:
        raise Rejected(404, "unknown_branch", f"GitHub has not said what the default branch of {repo} is")
    return web.Response(status=302, headers={"Location": address(branch)})


@page
async def hud(request: web.Request) -> web.Response:
    """Show the newest commits of a branch."""
    context, repo, chosen = request.app[CONTEXT], parameters.repo(request), hud_filter.of(request)
    settings = context.settings.of(TrunkSettings)
    async with context.store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        branch = await reading.find(tx, hidden, repo, request.match_info["branch"][:BRANCH_MOST])
        commits, more = await reading.newest(tx, branch, before=chosen.before, limit=chosen.per)
        facts = await reading.facts(tx, context.settings, branch, commits, jobs=chosen.shards)
        found = grid.build(facts, settings, shards=chosen.shards)
        took = await day_rows.signal_seconds(tx, branch.repository["repository_id"], branch.name, commits)
        broken = await suspects.of(tx, branch, found, sorted(chosen.columns(found)))
        opened = await _opened(tx, context, branch, found, chosen)
        deleted = await branches.deleted_at(tx, branch.repository["repository_id"], branch.name)
        known = [] if commits else await rows.branches(tx, branch.repository["repository_id"])
    running = any(line.verdict == "running" for line in found.lines)
    home = address(branch)
    return render(
        request,
        "hud.html",
        fresh=parameters.of(request, default=RUNNING if running and not chosen.before else 0),
        repo=branch.repository["full_name"],
        branch=branch.name,
        deleted=deleted,
        known=[(name, _address(branch, name)) for name in known],
        home=home,
        chosen=chosen,
        groups=list(dict.fromkeys(column.group for column in found.columns)),
        view=hud_view.view(found, chosen, home, {one.place for one in broken}),
        broken=broken,
        took=took,
        most_broken=suspects.BROKEN_MOST,
        most_suspects=SUSPECTS_MOST,
        columns=len(found.columns),
        opened=opened,
        following=commits[-1]["sha"] if more and commits else None,
        github=web_url(context.settings.github_api_url),
        json_url=f"/api/ci{home}{chosen.query(open='', groups='')}",
    )


def address(branch: Branch) -> str:
    """Return the address of a branch's page."""
    return _address(branch, branch.name)


def _address(branch: Branch, name: str) -> str:
    return f"/hud/{branch.repository['full_name']}/{quote(name)}"


async def _opened(
    tx: Transaction, context: Context, branch: Branch, found: grid.Grid, chosen: Filter
) -> Opened | None:
    settings = context.settings
    cell = hud_view.find(found, chosen.cell) if chosen.cell else None
    if cell is None:
        return None
    line, column, shown = cell
    facts = await reading.facts(tx, settings, branch, [line.commit], jobs=True)
    runs = grid.runs_of(facts, settings.of(TrunkSettings), column.name, shards=chosen.shards)
    more = max(0, len(runs) - RUNS_MOST)
    known, runs = runs, runs[:RUNS_MOST]
    on_github = f"{web_url(settings.github_api_url)}/{branch.repository['full_name']}"
    return Opened(
        line=line,
        column=column,
        cell=shown,
        runs=runs,
        more=more,
        beside=await _beside(tx, context, branch, line, runs) if column.source == "actions" else {},
        reruns=reruns.pages(known, on_github, now=tx.now) if column.source == "actions" else {},
    )


async def _beside(
    tx: Transaction, context: Context, branch: Branch, line: Line, runs: tuple[Run, ...]
) -> dict[str, list[BlockLine]]:
    """Return what other features know of upstream's jobs."""
    subject = CellSubject(
        repo=branch.repository["full_name"],
        repository_id=branch.repository["repository_id"],
        sha=line.commit["sha"],
        job_ids=frozenset(int(run.id) for run in runs if run.id.isdigit()),
    )
    found = await blocks.cell_lines(context.features, tx, subject)
    return {str(job_id): lines for job_id, lines in found.items()}
