"""GET /{owner}/{repo}/job/{id}, .../run/{id} and .../upload/{id}: a job or run of GitHub's, a file from another CI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from bot.ci.collect import api, job_names, job_reads, rows, storage_page, unstarted, uploads
from bot.core.links import web_url
from bot.oot.results.store import dispatches
from bot.web import access, blocks, html, parameters
from bot.web.app_keys import CONTEXT
from bot.web.blocks import RunSubject
from bot.web.bodies import door
from bot.web.html import page, render

if TYPE_CHECKING:
    from bot.ingest.rows import WorkflowJobRow

TEMPLATES = Path(__file__).parent / "templates"
RUNNING = 30  # seconds until a page on which something runs is reloaded
MOST_JOBS = 1_000


@page
async def job(request: web.Request) -> web.Response:
    """Show a job: its steps, its log as far as it is here, what features know of it."""
    context = request.app[CONTEXT]
    async with context.store.read() as tx:
        found = await job_reads.job(request, tx)
        log = await job_reads.log_state(request, tx, found)
        subject = job_reads.subject(request, found)
        added = await blocks.gather(context.features, "job", tx, subject)
    running = found["status"] != "completed" or log.state == "wanted"
    return render(
        request,
        "job.html",
        fresh=parameters.of(request, default=RUNNING if running else 0),
        job=found,
        parsed=job_names.parse(found["workflow_name"], found["name"] or ""),
        log=log,
        steps=job_reads.steps(found),
        tone=job_reads.tone(found["conclusion"]),
        took=job_reads.seconds(found["started_at"], found["completed_at"]),
        queued=job_reads.seconds(found["created_at"], found["started_at"]),
        blocks=added,
        json_url=f"/api/ci/jobs/{found['repo']}/{found['id']}",
    )


@page
async def run(request: web.Request) -> web.Response:
    """Show a run: its attempts, their jobs, what they left behind."""
    context = request.app[CONTEXT]
    github = web_url(context.settings.github_api_url)
    async with context.store.read() as tx:
        found = await job_reads.run(request, tx)
        newest = found[0]
        jobs = await rows.jobs(tx, newest["repository_id"], newest["id"])
        subject = RunSubject(
            repo=newest["repo"], repository_id=newest["repository_id"], run_id=newest["id"], github=github
        )
        added = await blocks.gather(context.features, "run", tx, subject)
        listing = await rows.listing(tx, newest)
    return render(
        request,
        "run.html",
        fresh=parameters.of(request, default=RUNNING if newest["status"] not in ("completed", None) else 0),
        run=newest,
        attempts=[(one, _by_urgency(jobs, one["run_attempt"])) for one in found],
        most=MOST_JOBS,
        tone_of=job_reads.tone,
        seconds=job_reads.seconds,
        unstarted=unstarted.words,
        listing=listing,
        blocks=added,
        json_url=f"/api/ci/artifacts/{newest['repo']}?run_id={newest['id']}",
    )


@page
async def upload(request: web.Request) -> web.Response:
    """Show a file that a backend uploaded: what it is of, and what was read."""
    context = request.app[CONTEXT]
    async with context.store.read() as tx:
        found = await job_reads.upload(request, tx)
        state = await job_reads.upload_state(tx, found)
        dispatch = (await dispatches.get_by_id(tx, [found["dispatch_id"]])).get(found["dispatch_id"])
        if dispatch and (await access.hidden_from(request, tx)).has(dispatch["upstream_repo"]):
            dispatch = (
                None  # a private upstream's pull requests are nothing to show with a public backend's log
            )
        added = await blocks.gather(context.features, "job", tx, job_reads.of_upload(request, found))
    return render(
        request,
        "upload.html",
        fresh=parameters.of(request, default=RUNNING if state.state == "wanted" else 0),
        upload=found,
        state=state,
        dispatch=dispatch,
        blocks=added,
        json_url="",
    )


def _by_urgency(jobs: list[WorkflowJobRow], attempt: int) -> list[WorkflowJobRow]:
    order = {"bad": 0, "wait": 1, "good": 2, "idle": 3}
    chosen = [one for one in jobs if (one["run_attempt"] or 1) == attempt]
    return sorted(chosen, key=lambda one: (order[job_reads.tone(one["conclusion"])], one["name"] or ""))


def setup(app: web.Application) -> None:
    """Add the pages and their JSON."""
    app[uploads.UNDER_WAY] = set()
    app.add_routes(door("/api/oot/uploads", uploads.upload))
    html.add_templates(app, TEMPLATES)
    app.add_routes(
        [
            *api.routes,
            web.get(r"/{owner}/{repo}/job/{id:\d+}", job),
            web.get(r"/{owner}/{repo}/run/{id:\d+}", run),
            web.get(r"/{owner}/{repo}/upload/{id:\d+}", upload),
            web.get("/{owner}/{repo}/storage", storage_page.storage),
        ]
    )
