"""The measured jobs of a run: a page and JSON.

GET /{owner}/{repo}/run/{id}/utilization and /api/ci/utilization/{owner}/{repo}/runs/{run}.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from bot.core.errors import Rejected
from bot.evidence.usage import measured_jobs
from bot.evidence.usage.tables import Durations, JobSummary, Measures
from bot.jobs import runs
from bot.pages import job_reads
from bot.web import openapi, parameters
from bot.web.answers import Answer, RowAnswer, fill_struct
from bot.web.openapi import DeclaredRefusal
from bot.web.parameters import REPO
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from bot.ingest.record_rows import WorkflowJobRow
    from bot.web.parameters import Query

JOBS_MOST, UNMEASURED_MOST = 1_000, 100
SORTS = ("memory", "idle", "cpu", "gpu", "name")
NO_RUN = DeclaredRefusal(404, "not_found", "no measured job of that run may be shown")
RUN = parameters.identifier("run", "GitHub's id of the run")
RUN_OF_PAGE = parameters.identifier("id", "GitHub's id of the run")
SORT = parameters.choice("sort", SORTS, "the order of jobs", only="page")


class MeasuredJob(
    RowAnswer,
    row=JobSummary,
    only=(
        "run_attempt", "job_id", "workflow_name", "job_name", "runner_label", "status", "reason", "flags", "trusted",
        "records", "error_records", *Measures.__annotations__, *Durations.__annotations__, "oom_risk",
    ),
    frozen=True,
    kw_only=True,
):  # fmt: skip
    """A job of a run; percent, and null where nothing was measured"""

    job_id: Annotated[int, Meta(description="below 0: which job the log is of is not known")]
    status: Annotated[str, Meta(description="ok, no_records, legacy or refused")]
    trusted: Annotated[bool, Meta(description="of the repository's own run on a trusted branch")]


class RunUtilization(Answer, frozen=True, kw_only=True):
    """The measured jobs of a run"""

    jobs: list[MeasuredJob]


@dataclass(frozen=True, kw_only=True)
class RunJobs:
    """The jobs of a run, measured or not."""

    repo: str
    run_id: int
    title: str | None
    sort: str
    measured: list[JobSummary]
    jobs: list[WorkflowJobRow]


async def read_run(query: Query) -> RunJobs:
    """Read the jobs of a run; raise Rejected 404 if nothing is known of it."""
    tx, repo, run_id = query.tx, query[REPO], query[RUN_OF_PAGE]
    owners = await job_reads.visible_ids_of(query, repo)
    attempts = await runs.attempts_of_run(tx, owners, run_id)
    measured, jobs = [], []
    for owner in sorted(owners):
        measured += await measured_jobs.jobs_of_run(tx, owner, run_id, limit=JOBS_MOST)
        jobs += await runs.jobs_of_run(tx, owner, run_id)
    if not attempts and not measured and not jobs:
        raise Rejected(404, "not_found", "no run of that id may be shown here")
    title = attempts[0]["name"] if attempts else (measured or jobs)[0]["workflow_name"]
    return RunJobs(repo=repo, run_id=run_id, title=title, sort=query[SORT], measured=measured, jobs=jobs)


async def read_measured(query: Query) -> list[JobSummary]:
    """Read the measured jobs of a run; raise Rejected 404 if there is none."""
    jobs: list[JobSummary] = []
    for owner in sorted(await job_reads.visible_ids_of(query, query[REPO])):
        jobs += await measured_jobs.jobs_of_run(query.tx, owner, query[RUN], limit=JOBS_MOST)
    if not jobs:
        raise NO_RUN.because("no measured job of that run may be shown")
    return jobs


def show_run(run: RunJobs) -> dict[str, Any]:
    """Return what the page shows: full memory and idle accelerators first."""
    known = {job["job_id"] for job in run.measured}
    return {
        "repo": run.repo,
        "run_id": run.run_id,
        "title": run.title,
        "sort": run.sort,
        "sorts": SORTS,
        "jobs": sorted(run.measured, key=lambda job: _place_in_order(job, run.sort)),
        "idle_share": measured_jobs.idle_share,
        "accelerated": any(job["gpu_s"] for job in run.measured),
        "unmeasured": [job for job in run.jobs if job["id"] not in known][:UNMEASURED_MOST],
        "not_measured": sum(job["id"] not in known for job in run.jobs),
        "all_jobs": len(run.jobs),
        "json_url": f"/api/ci/utilization/{run.repo}/runs/{run.run_id}" if run.measured else None,
    }


def answer_run(jobs: list[JobSummary]) -> RunUtilization:
    """Answer with the measured jobs."""
    return RunUtilization(jobs=[fill_struct(MeasuredJob, job) for job in jobs])


def _place_in_order(job: JobSummary, sort: str) -> tuple[bool, float, float, str]:
    idle = measured_jobs.idle_share(job) or 0.0
    memory = job["mem_max"] or 0.0
    first = {
        "memory": (memory, idle),
        "idle": (idle, memory),
        "cpu": (job["cpu_avg"] or 0.0, memory),
        "gpu": (job["gpu_avg"] or 0.0, memory),
        "name": (0.0, 0.0),
    }[sort]
    return job["status"] != "ok", -first[0], -first[1], job["job_name"]


RUN_PAGE = View(
    read=read_run,
    parameters=(REPO, RUN_OF_PAGE, SORT),
    page=Page(
        path=r"/{owner}/{repo}/run/{id:\d+}/utilization", template="utilization_run.html", values=show_run
    ),
)
RUN_VIEW = View(
    read=read_measured,
    parameters=(REPO, RUN),
    json=Json(
        path=r"/api/ci/utilization/{owner}/{repo}/runs/{run:\d+}",
        answer=answer_run,
        content=RunUtilization,
        name="runUtilization",
        summary="The measured jobs of a run",
        topic=openapi.CI,
        refusals=(NO_RUN,),
    ),
)
