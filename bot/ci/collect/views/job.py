"""GET /{owner}/{repo}/job/{id} and its JSON: a job, its steps, its log as far as it is here, its artifacts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from bot.ci.collect import job_names, job_reads
from bot.ci.collect.job_origin import find_origin
from bot.ci.collect.states import State
from bot.ci.collect.store import artifacts
from bot.ci.collect.store.artifacts import Choice
from bot.ci.collect.tables import FetchRow
from bot.ci.collect.views.artifact_answer import Artifact, artifact_answer
from bot.ci.collect.views.artifacts import NOTHING, ROWS
from bot.core.feature import sections
from bot.ingest.rows import WorkflowJobRow
from bot.web import blocks
from bot.web import operations as op
from bot.web import view_parameters as declare
from bot.web.answers import Answer, fill, one_of
from bot.web.row_answers import RowAnswer
from bot.web.view import Json, Page, View
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from bot.ci.collect.job_origin import Origin
    from bot.ci.collect.job_reads import LogState
    from bot.ci.collect.store.artifacts import ListedArtifact
    from bot.web.asked import Asked
    from bot.web.blocks import Block

RUNNING = 30  # seconds until a page on which something runs is reloaded
SHOWN = (
    "id", "repo", "run_id", "run_attempt", "name", "workflow_name", "status", "conclusion", "head_sha", "head_branch",
    "labels", "runner_name", "html_url", "created_at", "started_at", "completed_at",
)  # fmt: skip


class Log(RowAnswer, row=FetchRow, only=("state", "reason", "bytes", "lines"), frozen=True, kw_only=True):
    """A job's log, as far as it is here."""

    state: Annotated[str, one_of([state.value for state in State])]
    reason: Annotated[str, Meta(description="the state in words")]
    bytes: int | None
    lines: int | None


class CiJob(RowAnswer, row=WorkflowJobRow, only=SHOWN, frozen=True, kw_only=True):
    """A job of a repository's own CI."""

    labels: list[str] | None


class CiJobAnswer(Answer, frozen=True, kw_only=True):
    """A job with its log, why it failed, and its artifacts"""

    job: CiJob
    log: Log
    verdicts: Annotated[list[dict[str, Any]], Meta(description="why it failed, the likeliest first")]
    artifacts: list[Artifact]


@dataclass(frozen=True, kw_only=True)
class FoundJob:
    """A job, and what is known of it."""

    job: WorkflowJobRow
    log: LogState
    github: str
    origin: Origin | None = None  # of the page, as is the next
    blocks: list[Block] = field(default_factory=list)  # of the page
    more: dict[str, Any] = field(default_factory=dict)  # of the JSON, as are the artifacts
    artifacts: list[ListedArtifact] = field(default_factory=list)


JOB = declare.identifier("id", "GitHub's id of the job")


async def read_job(asked: Asked) -> FoundJob:
    """Read a job; raises Rejected 404."""
    tx, features = asked.tx, asked.context.features
    job = await job_reads.shown_job(tx, await job_reads.visible_to(asked, asked[REPO]), asked[JOB])
    log = await job_reads.log_state(tx, asked.settings, job)
    subject = job_reads.job_subject(asked.request, job)
    if asked.for_page:
        added = await blocks.gather(features, "job", tx, subject)
        origin = await find_origin(tx, job["repo"], job["run_id"], job["head_sha"], asked.hidden)
        return FoundJob(job=job, log=log, github=subject.github, origin=origin, blocks=added)
    more: dict[str, Any] = {}
    for add in sections(features, "job_json"):
        more |= await add(tx, subject)
    choice = Choice(same={"run_id": job["run_id"], "job_id": job["id"]})
    listed = await artifacts.list_artifacts(tx, {job["repository_id"]}, choice, limit=ROWS)
    return FoundJob(job=job, log=log, github=subject.github, more=more, artifacts=listed)


def show(found: FoundJob) -> dict[str, Any]:
    """Return what the page shows."""
    job = found.job
    return {
        "job": job,
        "parsed": job_names.parse_name(job["workflow_name"], job["name"] or ""),
        "log": found.log,
        "origin": found.origin,
        "steps": job_reads.steps_of_job(job),
        "tone": job_reads.conclusion_tone(job["conclusion"]),
        "took": job_reads.seconds_between(job["started_at"], job["completed_at"]),
        "queued": job_reads.seconds_between(job["created_at"], job["started_at"]),
        "blocks": found.blocks,
    }


def answer(found: FoundJob) -> CiJobAnswer:
    """Return the job as it is sent."""
    log, more = found.log, found.more
    return CiJobAnswer(
        job=fill(CiJob, found.job),
        log=Log(state=log.state, reason=log.reason, bytes=log.bytes, lines=more.get("lines")),
        verdicts=more.get("verdicts", []),
        artifacts=[artifact_answer(one, found.job["repo"], found.github) for one in found.artifacts],
    )


def _refresh(found: FoundJob) -> int:
    return RUNNING if found.job["status"] != "completed" or found.log.state == State.WANTED else 0


VIEW = View(
    read=read_job,
    parameters=(REPO, JOB),
    page=Page(path=r"/{owner}/{repo}/job/{id:\d+}", template="job.html", values=show, refresh=_refresh),
    json=Json(
        path=r"/api/ci/jobs/{owner}/{repo}/{id:\d+}",
        answer=answer,
        content=CiJobAnswer,
        name="ciJob",
        summary="A job of a repository's own CI",
        topic=op.CI,
        refusals=(NOTHING,),
        link=lambda found: {"repo": found.job["repo"], "id": found.job["id"]},
    ),
)
