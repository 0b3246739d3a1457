"""GET /{owner}/{repo}/job/{id}/utilization: what the machine did while a job ran, over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bot.ci.collect import job_reads as ci_jobs
from bot.ci.utilization import job_reads, words
from bot.ci.utilization.job_view import Asked, Step, view
from bot.ci.utilization.segments import in_background
from bot.core.feature import sections
from bot.core.json_fields import Kind, read
from bot.web import parameters
from bot.web.app_keys import CONTEXT
from bot.web.html import page, render

if TYPE_CHECKING:
    from aiohttp import web

    from bot.ingest.rows import WorkflowJobRow

TEMPLATES = Path(__file__).parent / "templates"
SERIES_MOST = 500  # characters
LATEST = 2**33  # seconds
OOM = "oom"  # the kind of a verdict on a log


@page
async def job(request: web.Request) -> web.Response:
    """Show a job's chart and tables."""
    context = request.app[CONTEXT]
    whole = parameters.choice(request, "all", ("", "1")) == "1"
    start = parameters.whole(request, "from", default=0, most=LATEST)
    end = parameters.whole(request, "to", default=0, most=LATEST)
    async with context.store.read() as tx:
        found = await job_reads.found(request, tx)
        verdicts = []
        if found.job is not None:
            subject = ci_jobs.subject(request, found.job)
            for add in sections(context.features, "job_json"):
                verdicts += (await add(tx, subject)).get("verdicts", [])
    stored = await job_reads.stored(context, found.row) if found.row else None
    asked = Asked(
        path=request.path,
        series=parameters.given(request, "series")[:SERIES_MOST],
        start=start,
        end=end,
        everything=whole,
    )
    row, of = found.row, found.job
    repo = row["repo"] if row else of["repo"] if of else ""
    run_id = row["run_id"] if row else (of and of["run_id"]) or 0
    identifier = row["job_id"] if row else of["id"] if of else 0
    peak = row["peak"] if row else None
    return render(
        request,
        "utilization_job.html",
        fresh=parameters.of(request),
        repo=repo,
        run_id=run_id,
        job_id=identifier,
        title=row["job_name"] if row else (of and of["name"]) or "job",
        known=of is not None,
        row=row,
        absence=found.absence,
        beside_peak=[name for name in peak["commands"] if whole or not in_background(name)] if peak else [],
        view=view(row, stored, steps(of), asked) if row and stored else None,
        asked=asked,
        oom=any(one["kind"] == OOM for one in verdicts) or bool(row and row["oom_risk"]),
        idle=words.idle_share(row) if row else None,
        accelerators=words.accelerators(row["gpu_type"] if row else None),
        json_url=f"/api/ci/utilization/{repo}/{run_id}/{identifier}" if row and stored else None,
    )


def steps(of: WorkflowJobRow | None) -> list[Step]:
    """Return the steps of a job that began, in order."""
    found = []
    for at, one in enumerate(ci_jobs.steps(of) if of else ()):
        raw = of["steps"][at] if of and of["steps"] else {}
        started, ended = read(raw, ("started_at",), Kind.TIME), read(raw, ("completed_at",), Kind.TIME)
        if started is not None:
            found.append(Step(one.name, started // 1000, (ended or started) // 1000))
    return found
