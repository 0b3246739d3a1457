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
from bot.jobs import runs as collected
from bot.pages import job_reads as ci_jobs
from bot.web import openapi as op
from bot.web import parameters as declare
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
RUN = declare.identifier("run", "GitHub's id of the run")
RUN_OF_PAGE = declare.identifier("id", "GitHub's id of the run")
SORT = declare.choice("sort", SORTS, "the order of jobs", only="page")


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


async def read_run(asked: Query) -> RunJobs:
    """Read the jobs of a run; raises Rejected 404 where nothing is known of it."""
    tx, repo, run_id = asked.tx, asked[REPO], asked[RUN_OF_PAGE]
    owners = await ci_jobs.visible_ids_of(asked, repo)
    attempts = await collected.attempts_of_run(tx, owners, run_id)
    measured, jobs = [], []
    for owner in sorted(owners):
        measured += await measured_jobs.jobs_of_run(tx, owner, run_id, limit=JOBS_MOST)
        jobs += await collected.jobs_of_run(tx, owner, run_id)
    if not attempts and not measured and not jobs:
        raise Rejected(404, "not_found", "no run of that id may be shown here")
    title = attempts[0]["name"] if attempts else (measured or jobs)[0]["workflow_name"]
    return RunJobs(repo=repo, run_id=run_id, title=title, sort=asked[SORT], measured=measured, jobs=jobs)


async def read_measured(asked: Query) -> list[JobSummary]:
    """Read the measured jobs of a run; raises Rejected 404 where there is none."""
    found: list[JobSummary] = []
    for owner in sorted(await ci_jobs.visible_ids_of(asked, asked[REPO])):
        found += await measured_jobs.jobs_of_run(asked.tx, owner, asked[RUN], limit=JOBS_MOST)
    if not found:
        raise NO_RUN.because("no measured job of that run may be shown")
    return found


def show_run(found: RunJobs) -> dict[str, Any]:
    """Return what the page shows: full memory and idle accelerators first."""
    known = {one["job_id"] for one in found.measured}
    return {
        "repo": found.repo,
        "run_id": found.run_id,
        "title": found.title,
        "sort": found.sort,
        "sorts": SORTS,
        "jobs": sorted(found.measured, key=lambda one: _place_in_order(one, found.sort)),
        "idle_share": measured_jobs.idle_share,
        "accelerated": any(one["gpu_s"] for one in found.measured),
        "unmeasured": [one for one in found.jobs if one["id"] not in known][:UNMEASURED_MOST],
        "not_measured": sum(one["id"] not in known for one in found.jobs),
        "all_jobs": len(found.jobs),
        "json_url": f"/api/ci/utilization/{found.repo}/runs/{found.run_id}" if found.measured else None,
    }


def answer_run(found: list[JobSummary]) -> RunUtilization:
    """Return the JSON of the measured jobs."""
    return RunUtilization(jobs=[fill_struct(MeasuredJob, one) for one in found])


def _place_in_order(one: JobSummary, sort: str) -> tuple[bool, float, float, str]:
    idle = measured_jobs.idle_share(one) or 0.0
    memory = one["mem_max"] or 0.0
    first = {
        "memory": (memory, idle),
        "idle": (idle, memory),
        "cpu": (one["cpu_avg"] or 0.0, memory),
        "gpu": (one["gpu_avg"] or 0.0, memory),
        "name": (0.0, 0.0),
    }[sort]
    return one["status"] != "ok", -first[0], -first[1], one["job_name"]


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
        topic=op.CI,
        refusals=(NO_RUN,),
    ),
)
