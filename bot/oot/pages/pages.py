"""The HUD: pages about backends and pull requests, complete without JavaScript; and their routes."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from aiohttp import web

from bot.core import text
from bot.core.errors import Rejected
from bot.core.feature import load_each
from bot.core.links import web_url
from bot.oot.allowlist import rows as allowlists
from bot.oot.pages import (
    api,
    backend_page,
    commit_page,
    crcr,
    health,
    levels_page,
    metrics_page,
    pulls,
    template_filters,
)
from bot.oot.pages.commit_page import unknown, upstream_ci
from bot.oot.publish import check_run_text
from bot.oot.statistics.day_sums_cache import DAY_SUMS, DaySumsCache
from bot.oot.verdict import upstream_checks
from bot.web import access, blocks, html, parameters
from bot.web.app_keys import CONTEXT
from bot.web.blocks import PullSubject
from bot.web.html import page, render

if TYPE_CHECKING:
    from bot.core.settings import Settings
    from bot.oot.pages.health import Health
    from bot.oot.pages.pulls import PullPage

EVENTS = {
    "pull_request": "pull requests", "push": "pushes", "nightly": "nightly tests", "periodic": "periodic tests",
}  # fmt: skip
TEMPLATES = Path(__file__).parent / "templates"
RUNNING = 15  # seconds until a page on which something runs is reloaded


@page
async def home(request: web.Request) -> web.Response:
    """Redirect to the page that a feature offers, else to the health page."""
    context = request.app[CONTEXT]
    async with context.store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        for find in load_each(context.features, "home"):
            if path := await find(tx, context.settings, hidden):
                return web.Response(status=302, headers={"Location": path})
    return web.Response(status=302, headers={"Location": "/oot"})


@page
async def overview(request: web.Request) -> web.Response:
    """Show every backend by level, worst first."""
    context = request.app[CONTEXT]
    days, level, query = parameters.days(request), parameters.level(request), parameters.words(request)
    events, fresh = parameters.events(request), parameters.of(request)
    async with context.store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        hidden.check_upstream(context.settings)
        known = await health.of_all(tx, hidden, days, request.app[DAY_SUMS], events)
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
        json_url="/api/oot/summary?" + parameters.query({"days": days, **chosen}),
    )


@page
async def pull(request: web.Request) -> web.Response:
    """Show a pull request: one head and the backends on it."""
    context = request.app[CONTEXT]
    repo, sha = parameters.repo(request), parameters.sha(request)
    number = parameters.number(request.match_info["number"])
    try:
        async with context.store.read() as tx:
            hidden = await access.hidden_from(request, tx)
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
            theirs = await upstream_ci(tx, found.repo, found.sha or "", ours=context.settings.app_id)
            subject = PullSubject(
                repo=found.repo,
                number=number,
                head_sha=found.sha,
                base_ref=found.record["base_ref"] if found.record else None,
                github=web_url(context.settings.github_api_url),
                settings=context.settings,
            )
            added = await blocks.gather(context.features, "pull", tx, subject)
    except Rejected as refusal:
        if refusal.code != "unknown_pull_request":
            raise
        named = f"pull request #{request.match_info['number'][:20]}"
        return unknown(request, repo, named, f"pull/{number}")
    unfinished = found.unfinished or (found.current and upstream_checks.running(theirs))
    return render(
        request,
        "pull.html",
        gate_name=check_run_text.gate(context.settings.check_prefix),
        gate_url=_gate_url(context.settings, found),
        fresh=parameters.of(request, default=RUNNING if unfinished else 0),
        shown=found,
        wanted=request.query.get("backend", ""),
        own=theirs,
        own_counts=upstream_checks.counts(theirs),
        blocks=added,
        json_url=f"/api/oot/pulls/{found.repo}/{number}" + (f"?sha={found.sha}" if sha else ""),
    )


def _gate_url(settings: Settings, found: PullPage) -> str | None:
    """Return the address of the gate's check run on GitHub, None before it was written."""
    if found.gate is None or found.gate.check_run_id is None:
        return None
    return f"{web_url(settings.github_api_url)}/{found.repo}/runs/{found.gate.check_run_id}"


def setup(app: web.Application) -> None:
    """Add the pages, their JSON, templates and cache."""
    html.add_templates(app, TEMPLATES, filters=template_filters.FILTERS, values=template_filters.VALUES)
    app[DAY_SUMS] = DaySumsCache()
    app.add_routes([*api.routes, *crcr.routes, *routes])


def _silent(one: Health, *, now: int) -> str:
    """Return how long a stale backend has been silent, "" for any other."""
    return text.duration((now - one.last_report_at) / 1000) if one.stale and one.last_report_at else ""


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
]
