"""The HUD: what do people read about backends and pull requests? Pages complete without JavaScript."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from aiohttp import web

from bot.domain import own, words
from bot.domain.urls import web_url
from bot.errors import Rejected
from bot.store import allowlists
from bot.web import (
    access,
    admin_pages,
    aside,
    backend_page,
    commit_page,
    health,
    html,
    levels_page,
    metrics_page,
    parameters,
    pulls,
    refresh,
    serving,
)
from bot.web.commit_page import unknown, upstreams_own
from bot.web.html import STATIC, page, render
from bot.web.keys import CONTEXT
from bot.web.past import PAST, Past
from bot.web.serving import KEPT, Kept, Sent

if TYPE_CHECKING:
    from bot.web.health import Health

KEEP = "public, max-age=86400"  # the address of a stylesheet names its content
EVENTS = {
    "pull_request": "pull requests", "push": "pushes", "nightly": "nightly tests", "periodic": "periodic tests",
}  # fmt: skip
KINDS = {"style.css": "text/css", "favicon.svg": "image/svg+xml"}
RUNNING = 15  # seconds until a pull request's page on which something runs loads itself anew
LOOKS: web.AppKey[dict[str, Sent]] = web.AppKey("looks", dict)


async def home(_request: web.Request) -> web.StreamResponse:
    """Send to the health page."""
    return _send_to("/oot")


@page
async def overview(request: web.Request) -> web.Response:
    """Show every backend by level, worst first."""
    context = request.app[CONTEXT]
    days, level, query = parameters.days(request), parameters.level(request), parameters.words(request)
    events, fresh = parameters.events(request), refresh.of(request)
    async with context.store.read() as tx:
        hidden = await access.of_request(request, tx)
        hidden.check_upstream(context.settings)
        known = await health.of_all(tx, hidden, days, request.app[PAST], events)
        newest, in_force = await allowlists.newest(tx), await allowlists.in_force(tx)
    found = [one for one in known if one.matches(query) and level in {None, one.level}]
    event = ",".join(sorted(events or ()))
    chosen = {"q": query, "level": level or "", "event": event}
    return render(
        request,
        "overview.html",
        fresh=fresh,
        days=days,
        level=level,
        query=query,
        windows=parameters.windows(days),
        events=EVENTS,
        event=event,
        rest=("&" + urlencode(chosen) if any(chosen.values()) else "") + fresh.rest,
        spark=health.SPARK,
        silent=functools.partial(_silent, now=context.clock.now()),
        reds=[one for one in found if one.turned == "red"],
        greens=[one for one in found if one.turned == "green"],
        groups=_by_level(found),
        known=len(known),
        allowlist_error=newest["error"] if newest and not newest["valid"] else None,
        has_allowlist=newest is not None,
        in_force=in_force,
        github=web_url(context.settings.github_api_url),
        json_url="/api/oot/summary?" + urlencode({"days": days} | chosen),
    )


@page
async def pull(request: web.Request) -> web.Response:
    """Show a pull request: one head and every backend on it."""
    context = request.app[CONTEXT]
    repo, sha = parameters.repo(request), parameters.sha(request)
    number = parameters.number(request.match_info["number"])
    try:
        async with context.store.read() as tx:
            hidden = await access.of_request(request, tx)
            found = await pulls.read(
                tx,
                context.settings,
                hidden,
                repo=repo,
                number=number,
                sha=sha,
                full=pulls.FULL,
                wanted=request.query.get("backend", ""),
            )
            theirs = await upstreams_own(tx, found.repo, found.sha or "", ours=context.settings.app_id)
    except Rejected as refusal:
        if refusal.code != "unknown_pull_request":
            raise
        return unknown(request, repo, f"pull request #{request.match_info['number'][:20]}")
    unfinished = found.unfinished or (found.current and own.running(theirs))
    return render(
        request,
        "pull.html",
        fresh=refresh.of(request, unasked=RUNNING if unfinished else 0),
        shown=found,
        wanted=request.query.get("backend", ""),
        own=theirs,
        own_counts=own.counts(theirs),
        json_url=f"/api/oot/pulls/{found.repo}/{number}" + (f"?sha={found.sha}" if sha else ""),
    )


async def static(request: web.Request) -> web.StreamResponse:
    """Answer with the stylesheet or the icon."""
    look = request.app[LOOKS][request.match_info.get("name", "favicon.svg")]
    return serving.send(request, look, control=KEEP)


def setup(app: web.Application) -> None:
    """Add the pages and what they are made with."""
    aside.setup(app)
    app[html.TEMPLATES] = html.environment()
    app[KEPT] = Kept()
    app[PAST] = Past()
    app[LOOKS] = {
        name: serving.seal(
            web.Response(body=(STATIC / name).read_bytes(), content_type=kind, charset="utf-8")
        )
        for name, kind in KINDS.items()
    }
    app.add_routes([*routes, *admin_pages.routes])


def _silent(one: Health, *, now: int) -> str:
    """Return for how long a stale backend has been silent, nothing of any other."""
    return words.duration((now - one.heard_at) / 1000) if one.stale and one.heard_at else ""


def _send_to(address: str) -> web.Response:
    return web.Response(status=302, headers={"Location": address})


def _by_level(found: list[Health]) -> dict[int, list[Health]]:
    groups: dict[int, list[Health]] = {}
    for one in found:
        groups.setdefault(one.level, []).append(one)
    return groups


routes: list[web.RouteDef] = [
    web.get("/", home),
    web.get("/oot", overview),
    web.get("/oot/levels", levels_page.levels),
    web.get("/oot/metrics", metrics_page.metrics),
    web.get("/oot/{org}/{repo}", backend_page.backend),
    web.get("/{owner}/{repo}/pull/{number}", pull),
    web.get("/{owner}/{repo}/commit/{sha}", commit_page.commit),
    web.get(r"/static/{name:style\.css|favicon\.svg}", static),
    web.get("/favicon.ico", static),
]
