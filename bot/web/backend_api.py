"""GET /api/oot/backends/...: what does one backend's page know, as JSON, and its jobs as a sheet?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from bot.domain import sheet
from bot.store import backend_reads, reads
from bot.web import access, health, parameters, shown
from bot.web.aside import aside
from bot.web.health import Window
from bot.web.keys import CONTEXT

if TYPE_CHECKING:
    from bot.web.health import Health

Row = dict[str, Any]
JOBS = 200  # rows unless ?limit= says otherwise
MOST_UNANSWERED = 20  # newest dispatches
SHEET, MOST_SHEET = 1_000, 5_000


@aside
async def backend(request: web.Request) -> web.Response:
    """Answer with one backend, its numbers and its newest jobs; `next` is the `before` of those that follow."""
    one, days, rows, following, silent = await _read(request, parameters.limit(request, default=JOBS))
    body = {
        "ok": True,
        "days": days,
        "backend": shown.health(one),
        "jobs": [shown.job(row) for row in rows],
        "next": following,
        "unanswered": [shown.dispatch(row) for row in silent],
    }
    return web.json_response(body)


@aside
async def jobs_csv(request: web.Request) -> web.Response:
    """Answer with the newest jobs of one backend as CSV; its Link header has the address of those that follow."""
    limit = parameters.limit(request, default=SHEET, most=MOST_SHEET)
    _, _, rows, following, _ = await _read(request, limit)
    text = sheet.write(shown.JOB_COLUMNS, map(shown.job, rows))
    name = request.match_info["repo"]
    headers = {"Content-Disposition": f'attachment; filename="{name}-jobs.csv"'}
    if following:
        more = request.rel_url.update_query(before=following)
        headers["Link"] = f'<{more}>; rel="next"'
    return web.Response(text=text, content_type="text/csv", charset="utf-8", headers=headers)


async def _read(request: web.Request, limit: int) -> tuple[Health, int, list[Row], str | None, list[Row]]:
    context = request.app[CONTEXT]
    repo, days = parameters.repo(request, "org"), parameters.days(request)
    before = parameters.before(request, [name == "job_key" for name in reads.ORDER_OF_JOBS])
    async with context.store.read() as tx:
        hidden = await access.of_request(request, tx)
        hidden.check_upstream(context.settings)
        window = Window(days=days, now=tx.now)
        one, _ = await health.of_one(tx, hidden, repo, window)
        rows = await reads.latest_jobs(
            tx, repo, since=window.since, limit=limit + 1, hidden=hidden.names,
            events=parameters.events(request), before=before,
        )  # fmt: skip
        silent = await backend_reads.unanswered(
            tx, repo, since=window.since, hidden=hidden.names, limit=MOST_UNANSWERED
        )
    last = rows[limit - 1] if len(rows) > limit else None
    following = parameters.following(last[name] for name in reads.ORDER_OF_JOBS) if last else None
    return one, days, rows[:limit], following, silent


routes: list[web.RouteDef] = [
    web.get("/api/oot/backends/{org}/{repo}", backend),
    web.get("/api/oot/backends/{org}/{repo}/jobs.csv", jobs_csv),
]
