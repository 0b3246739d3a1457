"""GET /{owner}/{repo}/job/{id}/utilization: what the machine did while a job ran, over time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bot.ci.collect import job_reads as ci_jobs
from bot.ci.utilization import words
from bot.ci.utilization.parse.segments import in_background
from bot.ci.utilization.views import job_chart, job_reads
from bot.ci.utilization.views.job_reads import ATTEMPT
from bot.core.feature import sections
from bot.core.json_fields import Kind
from bot.core.json_fields import read_member as read_field
from bot.web import view_parameters as declare
from bot.web.view import Page, View
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.ci.utilization.parse.blob import Stored
    from bot.ci.utilization.views.job_reads import Found
    from bot.ingest.rows import WorkflowJobRow
    from bot.web.asked import Asked

SERIES_MOST = 500  # characters
LATEST = 2**33  # seconds
OOM = "oom"  # the kind of a verdict on a log


@dataclass(frozen=True, kw_only=True)
class JobFound:
    """A job, its utilization, and what its log says."""

    found: Found
    asked: job_chart.Asked
    verdicts: Sequence[Mapping[str, Any]]
    stored: Stored | None = None


JOB = declare.identifier("id", "GitHub's id of the job")
ALL = declare.choice("all", ("", "1"), "commands in the background, too")
FROM = declare.whole("from", LATEST, "the first second of the chart", default=0)
TO = declare.whole("to", LATEST, "its last second", default=0)
SERIES = declare.text("series", "the series of the chart", most=SERIES_MOST)


async def read_job(asked: Asked) -> JobFound:
    """Read a job, and the verdicts on its log."""
    found = await job_reads.find_job(asked, asked[JOB], asked[ATTEMPT])
    verdicts: list[Mapping[str, Any]] = []
    if found.job is not None:
        subject = ci_jobs.job_subject(asked.request, found.job)
        for add in sections(asked.context.features, "job_json"):
            verdicts += (await add(asked.tx, subject)).get("verdicts", [])
    chosen = job_chart.Asked(
        path=asked.request.path,
        series=asked[SERIES],
        start=asked[FROM],
        end=asked[TO],
        everything=asked[ALL] == "1",
    )
    return JobFound(found=found, asked=chosen, verdicts=verdicts)


async def load_series(asked: Asked, one: JobFound) -> JobFound:
    """Load the series of a job."""
    row = one.found.row
    return replace(one, stored=await job_reads.load_series(asked.context, row)) if row else one


def show(one: JobFound) -> dict[str, Any]:
    """Return what the page shows: a job's chart and tables."""
    row, of, stored = one.found.row, one.found.job, one.stored
    repo = row["repo"] if row else of["repo"] if of else ""
    run_id = row["run_id"] if row else (of and of["run_id"]) or 0
    identifier = row["job_id"] if row else of["id"] if of else 0
    peak = row["peak"] if row else None
    shown = one.asked.everything
    return {
        "repo": repo,
        "run_id": run_id,
        "job_id": identifier,
        "title": row["job_name"] if row else (of and of["name"]) or "job",
        "known": of is not None,
        "row": row,
        "absence": one.found.absence,
        "beside_peak": [name for name in peak["commands"] if shown or not in_background(name)]
        if peak
        else [],
        "view": job_chart.draw_job(row, stored, steps(of), one.asked) if row and stored else None,
        "asked": one.asked,
        "oom": any(each["kind"] == OOM for each in one.verdicts) or bool(row and row["oom_risk"]),
        "idle": words.idle_share(row) if row else None,
        "accelerators": words.accelerators(row["gpu_type"] if row else None),
        "json_url": f"/api/ci/utilization/{repo}/{run_id}/{identifier}" if row and stored else None,
    }


def steps(of: WorkflowJobRow | None) -> list[job_chart.Step]:
    """Return the steps of a job that began, in order."""
    found = []
    for at, one in enumerate(ci_jobs.steps_of_job(of) if of else ()):
        raw = of["steps"][at] if of and of["steps"] else {}
        started = read_field(raw, ("started_at",), Kind.TIME)
        ended = read_field(raw, ("completed_at",), Kind.TIME)
        if started is not None:
            found.append(job_chart.Step(one.name, started // 1000, (ended or started) // 1000))
    return found


VIEW = View(
    read=read_job,
    complete=load_series,
    parameters=(REPO, JOB, ATTEMPT, ALL, FROM, TO, SERIES),
    page=Page(path=r"/{owner}/{repo}/job/{id:\d+}/utilization", template="utilization_job.html", values=show),
)
