"""GET /api/oot/...: what the pages show, as JSON, and the jobs of one backend as CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web
from msgspec.structs import asdict

from bot.core.errors import Rejected
from bot.oot.allowlist import rows as allowlists
from bot.oot.pages import answers, gate_answer, health, levels_page, metrics_page, pulls
from bot.oot.pages.health import Window
from bot.oot.pages.rows import (
    ORDER_OF_JOBS,
    jobs_of_pull,
    jobs_on_commit,
    latest_jobs,
    unanswered,
)
from bot.oot.statistics.day_sums_cache import DAY_SUMS
from bot.web import access, csv_export, parameters
from bot.web.answers import fill, send
from bot.web.app_keys import CONTEXT
from bot.web.render_thread import in_render_thread

if TYPE_CHECKING:
    from bot.oot.pages.health import Health
    from bot.oot.results.tables import DispatchRow, JobRow

# rows, unless ?limit= says otherwise
JOBS = 200
JOBS_OF_PULL, MOST_JOBS_OF_PULL = 1_000, 5_000
CSV_ROWS, MOST_CSV_ROWS = 1_000, 5_000


@in_render_thread
async def summary(request: web.Request) -> web.Response:
    """Answer with every backend and its numbers; `q` and `level` narrow the list, `event` what is counted."""
    context = request.app[CONTEXT]
    days, level, words = parameters.days(request), parameters.level(request), parameters.words(request)
    events = parameters.events(request)
    async with context.store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        hidden.check_upstream(context.settings)
        found = await health.of_all(tx, hidden, days, request.app[DAY_SUMS], events)
    chosen = [one for one in found if one.matches(words) and level in {None, one.level}]
    return send(answers.Summary(days=days, backends=[answers.backend(one) for one in chosen]))


@in_render_thread
async def backend(request: web.Request) -> web.Response:
    """Answer with one backend, its numbers and its newest jobs; `next` is the `before` of the following page."""
    one, days, rows, following, silent = await _read_backend(request, parameters.limit(request, default=JOBS))
    answer = answers.BackendAnswer(
        days=days,
        backend=answers.backend(one),
        jobs=[answers.job(row) for row in rows],
        next=following,
        unanswered=[fill(answers.Unanswered, row) for row in silent],
    )
    return send(answer)


@in_render_thread
async def jobs_csv(request: web.Request) -> web.Response:
    """Answer with the newest jobs of one backend as CSV; the Link header has the address of the next ones."""
    limit = parameters.limit(request, default=CSV_ROWS, most=MOST_CSV_ROWS)
    _, _, rows, following, _ = await _read_backend(request, limit)
    jobs = (asdict(answers.job(row)) for row in rows)
    text = csv_export.write(answers.Job.__struct_fields__, jobs)
    name = request.match_info["repo"]
    headers = {"Content-Disposition": f'attachment; filename="{name}-jobs.csv"'}
    if following:
        more = request.rel_url.update_query(before=following)
        headers["Link"] = f'<{more}>; rel="next"'
    return web.Response(text=text, content_type="text/csv", charset="utf-8", headers=headers)


async def _read_backend(
    request: web.Request, limit: int
) -> tuple[Health, int, list[JobRow], str | None, list[DispatchRow]]:
    context = request.app[CONTEXT]
    repo, days = parameters.repo(request, "org"), parameters.days(request)
    before = parameters.before(request, [name == "job_key" for name in ORDER_OF_JOBS])
    events = parameters.events(request)
    async with context.store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        hidden.check_upstream(context.settings)
        window = Window(days=days, now=tx.now)
        one, _ = await health.of_one(tx, hidden, repo, window)
        rows = await latest_jobs(
            tx, repo, since=window.since, limit=limit + 1, hidden=hidden.names,
            events=events, before=before,
        )  # fmt: skip
        silent = await unanswered(tx, repo, since=window.since, hidden=hidden.names)
    last = rows[limit - 1] if len(rows) > limit else None
    following = (
        parameters.following((last["received_at"], last["run_attempt"], last["job_key"])) if last else None
    )
    return one, days, rows[:limit], following, silent


@in_render_thread
async def pull(request: web.Request) -> web.Response:
    """Answer with a pull request: its heads, the backends on one, the newest jobs of all or only of ?sha=."""
    context = request.app[CONTEXT]
    repo, sha = parameters.repo(request), parameters.sha(request)
    number = parameters.number(request.match_info["number"])
    limit = parameters.limit(request, default=JOBS_OF_PULL, most=MOST_JOBS_OF_PULL)
    async with context.store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        found = await pulls.read(tx, context.settings, hidden, repo=repo, number=number, sha=sha)
        only = None if sha is None else found.sha
        rows = await jobs_of_pull(tx, found.names, number, sha=only, limit=limit + 1)
    answer = answers.PullAnswer(
        pull=answers.pull(found),
        gate=gate_answer.read(found, prefix=context.settings.check_prefix),
        heads=[answers.head(line, current=line is found.heads[0]) for line in found.heads],
        backends=[answers.section(section) for section in found.sections],
        jobs=[answers.job(row) for row in rows[-limit:]],
        more=len(rows) > limit,
    )
    return send(answer)


@in_render_thread
async def commit(request: web.Request) -> web.Response:
    """Answer with the results of one upstream commit: of pull requests, pushes, nightly and periodic runs."""
    repo, sha = parameters.repo(request), parameters.commit(request.match_info["sha"])
    events, limit = parameters.events(request), parameters.limit(request, default=JOBS)
    async with request.app[CONTEXT].store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        # a hidden repository is searched for under a name that cannot exist: as slow as an unknown one
        where = pulls.NOWHERE if hidden.has(repo) else repo
        rows = await jobs_on_commit(tx, where, sha, events=events, limit=limit)
    if not rows:
        raise Rejected(404, "unknown_commit", f"no backend has reported on {sha} of {repo[:200]}")
    return send(answers.CommitAnswer(repo=repo, jobs=[answers.job(row) for row in rows]))


@in_render_thread
async def allowlist(request: web.Request) -> web.Response:
    """Answer with the entries in force, and with the errors of the newest version."""
    context = request.app[CONTEXT]
    async with context.store.read() as tx:
        (await access.hidden_from(request, tx)).check_upstream(context.settings)
        in_force = await allowlists.in_force(tx)
        newest = await allowlists.newest(tx)
    entries = in_force.entries if in_force else ()
    answer = answers.Allowlist(
        in_force=in_force is not None,
        entries=[answers.entry(one, context.settings.pull_actions) for one in entries],
        newest=fill(answers.AllowlistVersion, newest, errors=(newest["error"] or "").splitlines())
        if newest
        else None,
    )
    return send(answer)


routes: list[web.RouteDef] = [
    web.get("/api/oot/summary", summary),
    web.get("/api/oot/backends/{org}/{repo}", backend),
    web.get("/api/oot/backends/{org}/{repo}/jobs.csv", jobs_csv),
    web.get("/api/oot/pulls/{owner}/{repo}/{number}", pull),
    web.get("/api/oot/commits/{owner}/{repo}/{sha}", commit),
    web.get("/api/oot/allowlist", allowlist),
    web.get("/api/oot/levels", levels_page.as_json),
    web.get("/api/oot/metrics", metrics_page.as_json),
]
