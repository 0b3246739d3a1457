"""GET /api/oot/backends/{org}/{repo} and its jobs as CSV: the numbers and newest jobs of one backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from aiohttp import web
from msgspec.structs import asdict

from bot.oot.results import jobs
from bot.oot.results.tables import DispatchRow
from bot.oot.statistics import health
from bot.oot.statistics.health import Window
from bot.pages.backends import job_rows
from bot.pages.backends.interface import (
    BACKEND,
    DAYS,
    EVENTS,
    NOTHING_TO_SHOW,
    RESULTS,
    UNKNOWN_BACKEND,
    Backend,
    Job,
    backend_answer,
    hide_in_jobs,
    job_answer,
)
from bot.web import addresses, answers
from bot.web import openapi as op
from bot.web import parameters as declare
from bot.web.answers import Answer, RowAnswer, fill_struct, one_of
from bot.web.page_cache import in_render_thread
from bot.web.parameters import describe_parameters, open_query
from bot.web.view import Endpoint, Json, View

if TYPE_CHECKING:
    from bot.oot.results.tables import JobRow
    from bot.oot.statistics.health import Health
    from bot.web.parameters import Query

# rows, unless ?limit= says otherwise
LIMIT = declare.limit(200)
CSV_LIMIT = declare.limit(1_000, most=5_000)
BEFORE = declare.before([name == "job_key" for name in jobs.ORDER_OF_JOBS])
PARAMETERS = (BACKEND, DAYS, EVENTS, LIMIT, BEFORE)
CSV_PARAMETERS = (BACKEND, DAYS, EVENTS, CSV_LIMIT, BEFORE)

UNANSWERED = (
    "delivery_id", "upstream_repo", "event_type", "pr_number", "head_sha", "state", "error", "created_at",
    "dispatched_at",
)  # fmt: skip


class Unanswered(RowAnswer, row=DispatchRow, only=UNANSWERED, rename={"error": "reason"}, frozen=True):
    """A dispatch that ended without a report, and why, as far as known."""

    state: Annotated[str, one_of(("never_started", "not_installed", "failed"))]


class BackendAnswer(Answer, frozen=True, kw_only=True):
    """Its numbers, its newest jobs and unanswered dispatches; `next` as with records"""

    days: int
    backend: Backend
    jobs: list[Job]
    next: str | None
    unanswered: list[Unanswered]


@dataclass(frozen=True, kw_only=True)
class BackendJobs:
    """A backend, its newest jobs and the dispatches that it did not answer."""

    health: Health
    days: int
    jobs: list[JobRow]
    following: str | None  # the position to continue from
    unanswered: list[DispatchRow]


async def read_backend_jobs(query: Query) -> BackendJobs:
    """Read a backend and its newest jobs; raises Rejected 404."""
    return await _read_at_most(query, query[LIMIT])


def answer_backend_jobs(backend: BackendJobs) -> BackendAnswer:
    """Return a backend, its numbers and its newest jobs."""
    return BackendAnswer(
        days=backend.days,
        backend=backend_answer(backend.health),
        jobs=[job_answer(row) for row in backend.jobs],
        next=backend.following,
        unanswered=[fill_struct(Unanswered, row) for row in backend.unanswered],
    )


@in_render_thread
async def send_jobs_csv(request: web.Request) -> web.Response:
    """Answer with the newest jobs of one backend as CSV; the Link header has the address of the next ones."""
    async with open_query(request, CSV_PARAMETERS) as query:
        query.hidden.check_upstream(query.settings)
        backend = await _read_at_most(query, query[CSV_LIMIT])
    text = answers.write_csv(Job.__struct_fields__, (asdict(job_answer(row)) for row in backend.jobs))
    name = request.match_info["repo"]
    headers = {"Content-Disposition": f'attachment; filename="{name}-jobs.csv"'}
    if backend.following:
        more = request.rel_url.update_query(before=backend.following)
        headers["Link"] = f'<{more}>; rel="next"'
    return web.Response(text=text, content_type="text/csv", charset="utf-8", headers=headers)


VIEW = View(
    read=read_backend_jobs,
    of_upstream=True,
    parameters=PARAMETERS,
    json=Json(
        path="/api/oot/backends/{org}/{repo}",
        answer=answer_backend_jobs,
        content=BackendAnswer,
        name="backend",
        summary="Health and jobs of one backend",
        topic=RESULTS,
        refusals=(NOTHING_TO_SHOW, UNKNOWN_BACKEND),
    ),
)
CSV = Endpoint(
    web.get("/api/oot/backends/{org}/{repo}/jobs.csv", send_jobs_csv),
    op.Operation(
        "GET /api/oot/backends/{org}/{repo}/jobs.csv",
        "backendJobs",
        "The jobs of one backend as CSV",
        op.Content(
            str,
            "The newest jobs, after a line of names; no cell is a formula. The Link header's `next` has more",
            media_type="text/csv",
        ),
        topic=RESULTS,
        callers=op.READER,
        parameters=describe_parameters(CSV_PARAMETERS),
        refusals=[op.WRONG_PARAMETER, NOTHING_TO_SHOW, UNKNOWN_BACKEND, *op.READING],
    ),
)


async def _read_at_most(query: Query, limit: int) -> BackendJobs:
    tx, repo, hidden = query.tx, query[BACKEND], query.hidden
    window = Window(days=query[DAYS], now=tx.now)
    backend, _ = await health.read_backend(tx, hidden, repo, window)
    rows = await jobs.latest_jobs(
        tx, repo, since=window.since, limit=limit + 1, hidden=hidden.names, events=query[EVENTS], before=query[BEFORE]
    )  # fmt: skip
    last = rows[limit - 1] if len(rows) > limit else None
    place = (last["received_at"], last["run_attempt"], last["job_key"]) if last else None
    return BackendJobs(
        health=backend,
        days=query[DAYS],
        jobs=await hide_in_jobs(query, rows[:limit]),
        following=addresses.following(place) if place else None,
        unanswered=await job_rows.unanswered_dispatches(tx, repo, since=window.since, hidden=hidden.names),
    )
