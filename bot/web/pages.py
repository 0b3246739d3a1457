"""The HUD: what do people read about backends and pull requests? Pages complete without JavaScript."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from aiohttp import web

from bot.domain import verdict
from bot.errors import Rejected
from bot.store import allowlists, reads
from bot.web import access, health, html, parameters, pulls
from bot.web.html import page, render
from bot.web.keys import CONTEXT

if TYPE_CHECKING:
    from bot.web.health import Health

STATIC = Path(__file__).parent / "static"
KEEP = "public, max-age=86400"  # the address of a stylesheet names its version
JOBS = 200
WINDOWS = (7, 30, 90, 400)  # days offered for choice


async def home(_request: web.Request) -> web.StreamResponse:
    """Send to the health page."""
    return _send_to("/oot")


@page
async def overview(request: web.Request) -> web.Response:
    """Show every backend by level, worst first."""
    context = request.app[CONTEXT]
    days, level, query = parameters.days(request), parameters.level(request), request.query.get("q", "")
    async with context.store.read() as tx:
        allowed = await access.of_request(request, tx)
        allowed.check_upstream(context.settings)
        known = await health.of_all(tx, allowed, days)
        newest = await allowlists.newest(tx)
    found = [one for one in known if one.matches(query) and level in {None, one.level}]
    return render(
        request,
        "overview.html",
        days=days,
        level=level,
        query=query,
        windows=_windows(days),
        groups=_by_level(found),
        known=len(known),
        allowlist_error=newest["error"] if newest and not newest["valid"] else None,
        has_allowlist=newest is not None,
        github=_web_url(context.settings.github_api_url),
        json_url="/api/oot/summary?" + urlencode({"days": days, "level": level or "", "q": query}),
    )


@page
async def levels(request: web.Request) -> web.Response:
    """Show what levels and words mean, and who is on the allowlist."""
    context = request.app[CONTEXT]
    async with context.store.read() as tx:
        (await access.of_request(request, tx)).check_upstream(context.settings)
        in_force = await allowlists.in_force(tx)
        newest = await allowlists.newest(tx)
    return render(
        request,
        "levels.html",
        in_force=in_force,
        newest=newest,
        label_prefixes=context.settings.label_prefixes,
        github=_web_url(context.settings.github_api_url),
        json_url="/api/oot/allowlist",
    )


@page
async def backend(request: web.Request) -> web.Response:
    """Show one backend: its numbers and its newest jobs."""
    context = request.app[CONTEXT]
    repo, days = parameters.repo(request, "org"), parameters.days(request)
    async with context.store.read() as tx:
        allowed = await access.of_request(request, tx)
        allowed.check_upstream(context.settings)
        one = await health.of_one(tx, allowed, repo, days)
        if one is None:
            raise Rejected(404, "unknown_backend", f"{repo} is not on the allowlist and has never reported")
        since = tx.now - days * parameters.DAY
        rows = await reads.latest_jobs(tx, repo, since=since, limit=JOBS, hidden=allowed.names)
    return render(
        request,
        "backend.html",
        backend=one,
        days=days,
        windows=_windows(days),
        jobs=[(row, verdict.job(row)) for row in rows],
        limit=JOBS,
        github=_web_url(context.settings.github_api_url),
        json_url=f"/api/oot/backends/{one.repo}?days={days}",
    )


@page
async def pull(request: web.Request) -> web.Response:
    """Show a pull request: one head and every backend on it."""
    context = request.app[CONTEXT]
    repo, sha = parameters.repo(request), parameters.sha(request)
    number = parameters.number(request.match_info["number"])
    try:
        async with context.store.read() as tx:
            allowed = await access.of_request(request, tx)
            found = await pulls.read(tx, context.settings, allowed, repo=repo, number=number, sha=sha)
    except Rejected as refusal:
        if refusal.code != "unknown_pull_request":
            raise
        return _unknown(request, repo, f"pull request #{request.match_info['number'][:20]}")
    return render(
        request,
        "pull.html",
        shown=found,
        json_url=f"/api/oot/pulls/{found.repo}/{number}" + (f"?sha={found.sha}" if sha else ""),
    )


@page
async def commit(request: web.Request) -> web.Response:
    """Send to the pull request a commit is a head of."""
    context = request.app[CONTEXT]
    repo, sha = parameters.repo(request), parameters.commit(request.match_info["sha"])
    async with context.store.read() as tx:
        allowed = await access.of_request(request, tx)
        found = None if allowed.hides(repo) else await reads.pull_of_head(tx, repo, sha)
    if found is None:
        return _unknown(request, repo, f"commit {sha[:12]}")
    return _send_to(f"/{found['repo']}/pull/{found['number']}?sha={found['head_sha']}")


async def static(request: web.Request) -> web.StreamResponse:
    """Answer with the stylesheet or the icon."""
    name = request.match_info.get("name", "favicon.svg")
    return web.FileResponse(STATIC / name, headers={"Cache-Control": KEEP})


def setup(app: web.Application) -> None:
    """Add the pages and what they are made with."""
    app[html.TEMPLATES] = html.environment()
    app.add_routes(routes)


def _unknown(request: web.Request, repo: str, what: str) -> web.Response:
    """Answer the same for what is private and for what nobody told us about."""
    return render(request, "unknown.html", status=404, repo=repo, what=what)


def _send_to(address: str) -> web.Response:
    return web.Response(status=302, headers={"Location": address})


def _by_level(found: list[Health]) -> dict[int, list[Health]]:
    groups: dict[int, list[Health]] = {}
    for one in found:
        groups.setdefault(one.level, []).append(one)
    return groups


def _windows(days: int) -> list[int]:
    return sorted({*WINDOWS, days})


def _web_url(api_url: str) -> str:
    """Return where people see GitHub, given where programs do."""
    return api_url.removesuffix("/api/v3").replace("://api.", "://", 1)


routes: list[web.RouteDef] = [
    web.get("/", home),
    web.get("/oot", overview),
    web.get("/oot/levels", levels),
    web.get("/oot/{org}/{repo}", backend),
    web.get("/{owner}/{repo}/pull/{number}", pull),
    web.get("/{owner}/{repo}/commit/{sha}", commit),
    web.get(r"/static/{name:style\.css|favicon\.svg}", static),
    web.get("/favicon.ico", static),
]
