"""GET /api/oot/...: what do the pages know, as JSON?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from bot.domain.view import State
from bot.errors import Rejected
from bot.store import allowlists, reads
from bot.web import (
    access,
    backend_api,
    health,
    levels_page,
    metrics_page,
    parameters,
    pulls,
    record_api,
    shown,
)
from bot.web.aside import aside
from bot.web.keys import CONTEXT
from bot.web.past import PAST

if TYPE_CHECKING:
    from bot.web.pulls import HeadLine

JOBS_OF_PULL, MOST_JOBS_OF_PULL = 1_000, 5_000  # rows unless ?limit= says otherwise, and at most


@aside
async def summary(request: web.Request) -> web.Response:
    """Answer with every backend and its numbers; `q` and `level` narrow the list, `event` what is counted."""
    context = request.app[CONTEXT]
    days, level, words = parameters.days(request), parameters.level(request), parameters.words(request)
    events = parameters.events(request)
    async with context.store.read() as tx:
        hidden = await access.of_request(request, tx)
        hidden.check_upstream(context.settings)
        found = await health.of_all(tx, hidden, days, request.app[PAST], events)
    backends = [shown.health(one) for one in found if one.matches(words) and level in {None, one.level}]
    return web.json_response({"ok": True, "days": days, "backends": backends})


@aside
async def pull(request: web.Request) -> web.Response:
    """Answer with a pull request: its heads, the backends of one, the newest jobs of all, or of ?sha= only."""
    context = request.app[CONTEXT]
    repo, sha = parameters.repo(request), parameters.sha(request)
    number = parameters.number(request.match_info["number"])
    limit = parameters.limit(request, default=JOBS_OF_PULL, most=MOST_JOBS_OF_PULL)
    async with context.store.read() as tx:
        hidden = await access.of_request(request, tx)
        found = await pulls.read(tx, context.settings, hidden, repo=repo, number=number, sha=sha)
        only = None if sha is None else found.sha
        rows = await reads.jobs_of_pull(tx, found.names, number, sha=only, limit=limit + 1)
    body = {
        "ok": True,
        "pull": shown.pull(found),
        "heads": [_head(line, current=line is found.heads[0]) for line in found.heads],
        "backends": [shown.section(section) for section in found.sections],
        "jobs": [shown.job(row) for row in rows[-limit:]],
        "more": len(rows) > limit,
    }
    return web.json_response(body)


@aside
async def commit(request: web.Request) -> web.Response:
    """Answer with what backends said of one upstream commit: pull requests, pushes, nightly and periodic runs."""
    repo, sha = parameters.repo(request), parameters.commit(request.match_info["sha"])
    events, limit = parameters.events(request), parameters.limit(request, default=backend_api.JOBS)
    async with request.app[CONTEXT].store.read() as tx:
        hidden = await access.of_request(request, tx)
        # what is hidden is looked for where nothing is: it takes as long as what nobody knows
        where = pulls.NOWHERE if hidden.has(repo) else repo
        rows = await reads.jobs_on_commit(tx, where, sha, events=events, limit=limit)
    if not rows:
        raise Rejected(404, "unknown_commit", f"nobody has reported on {sha} of {repo[:200]}")
    return web.json_response({"ok": True, "repo": repo, "jobs": [shown.job(row) for row in rows]})


@aside
async def allowlist(request: web.Request) -> web.Response:
    """Answer with the entries in force, and with what is wrong with the newest version."""
    context = request.app[CONTEXT]
    async with context.store.read() as tx:
        (await access.of_request(request, tx)).check_upstream(context.settings)
        in_force = await allowlists.in_force(tx)
        newest = await allowlists.newest(tx)
    body: dict[str, Any] = {
        "ok": True,
        "in_force": in_force is not None,
        "entries": [shown.entry(entry) for entry in in_force.entries] if in_force else [],
        "newest": None,
    }
    if newest:
        errors = (newest["error"] or "").splitlines()
        body["newest"] = {
            "source": newest["source"],
            "valid": newest["valid"],
            "errors": errors,
            "loaded_at": shown.time(newest["loaded_at"]),
        }
    return web.json_response(body)


def _head(line: HeadLine, *, current: bool) -> dict[str, Any]:
    states = [backend.state for backend in line.backends]
    counts = {str(state): states.count(state) for state in State if state in states}
    return {"sha": line.sha, "current": current, "backends": counts if line.judged else None}


routes: list[web.RouteDef] = [
    web.get("/api/oot/summary", summary),
    *backend_api.routes,
    web.get("/api/oot/pulls/{owner}/{repo}/{number}", pull),
    web.get("/api/oot/commits/{owner}/{repo}/{sha}", commit),
    web.get("/api/oot/allowlist", allowlist),
    web.get("/api/oot/levels", levels_page.as_json),
    web.get("/api/oot/metrics", metrics_page.as_json),
    *record_api.routes,
]
