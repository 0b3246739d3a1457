"""GET /{owner}/{repo}/job/{id} and its JSON; pages of a job that ran elsewhere and of an uploaded file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from bot.core.escaping import web_url
from bot.evidence.collect import artifacts
from bot.evidence.collect.artifacts import ArtifactChoice
from bot.evidence.collect.tables import FetchRow, ci_artifact
from bot.ingest.record_rows import WorkflowJobRow
from bot.jobs import job_cells, job_names
from bot.jobs.cells import CONCLUSIONS, STATES
from bot.jobs.collection import FetchState
from bot.jobs.job_names import LABEL_SEPARATOR
from bot.oot.results import dispatches
from bot.pages import job_reads
from bot.pages.job_reports.skipped_documents import show_job_documents
from bot.pages.jobs import artifact_pages, run
from bot.pages.jobs.artifact_pages import ARTIFACTS_SHOWN, NO_ARTIFACTS, Artifact, artifact_answer
from bot.pages.jobs.run import find_origin
from bot.pages.logs import sections as logs
from bot.pages.tests import views as tests
from bot.pages.usage import sections as usage
from bot.web import openapi as op
from bot.web import parameters as declare
from bot.web.answers import Answer, RowAnswer, fill_struct, one_of
from bot.web.blocks import JobSubject, order_blocks
from bot.web.parameters import REPO
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.evidence.collect.artifacts import ListedArtifact
    from bot.evidence.collect.tables import UploadRow
    from bot.jobs.job_cells import OtherJobRow
    from bot.oot.results.tables import DispatchRow
    from bot.pages.job_reads import LogState
    from bot.pages.jobs.run import RunOrigin
    from bot.web.blocks import Block
    from bot.web.parameters import Query

RUNNING_REFRESH = 30  # seconds until a page on which something runs is reloaded
SHOWN_FIELDS = (
    "id", "repo", "run_id", "run_attempt", "name", "workflow_name", "status", "conclusion", "head_sha", "head_branch",
    "labels", "runner_name", "html_url", "created_at", "started_at", "completed_at",
)  # fmt: skip
JOB_ID = declare.identifier("id", "GitHub's id of the job")
OTHER_JOB_ID = declare.identifier("id", "our number for the job, as the grid and searches link it")
UPLOAD_ID = declare.identifier("id", "the upload's id")


class Log(RowAnswer, row=FetchRow, only=("state", "reason", "bytes", "lines"), frozen=True, kw_only=True):
    """A job's log, as far as it is here."""

    state: Annotated[str, one_of([state.value for state in FetchState])]
    reason: Annotated[str, Meta(description="the state in words")]
    bytes: int | None
    lines: int | None


class CiJob(RowAnswer, row=WorkflowJobRow, only=SHOWN_FIELDS, frozen=True, kw_only=True):
    """A job of a repository's own CI."""

    labels: list[str] | None


class CiJobAnswer(Answer, frozen=True, kw_only=True):
    """A job with its log, why it failed, and its artifacts"""

    job: CiJob
    log: Log
    verdicts: Annotated[list[dict[str, Any]], Meta(description="why it failed, the likeliest first")]
    artifacts: list[Artifact]


@dataclass(frozen=True, kw_only=True)
class JobOnPage:
    """A job, and what is known of it."""

    job: WorkflowJobRow
    log: LogState
    github: str
    origin: RunOrigin | None = None  # of the page, as is the next
    blocks: list[Block] = field(default_factory=list)  # of the page
    more: dict[str, Any] = field(default_factory=dict)  # of the JSON, as are the artifacts
    artifacts: list[ListedArtifact] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class OtherJobOnPage:
    """A job of another CI, and what is known of it."""

    repo: str
    job: OtherJobRow
    log: LogState | None  # None: it was never asked for
    blocks: list[Block]

    @property
    def conclusion(self) -> str:
        """How it ended; empty while it has not."""
        return CONCLUSIONS[self.job["conclusion"]]


@dataclass(frozen=True, kw_only=True)
class UploadOnPage:
    """An uploaded file, and what is known of it."""

    upload: UploadRow
    state: LogState
    dispatch: DispatchRow | None
    blocks: list[Block]


async def read_job(query: Query) -> JobOnPage:
    """Read a job; raises Rejected 404."""
    tx = query.tx
    job = await job_reads.shown_job(tx, await job_reads.visible_ids_of(query, query[REPO]), query[JOB_ID])
    log = await job_reads.log_state(tx, query.settings, job)
    subject = job_reads.job_subject(query.request, job)
    if query.for_page:
        added = await read_job_blocks(tx, subject)
        origin = await find_origin(tx, job["repo"], job["run_id"], job["head_sha"], query.hidden)
        return JobOnPage(job=job, log=log, github=subject.github, origin=origin, blocks=added)
    more = await logs.job_json(tx, subject)
    choice = ArtifactChoice(same={"run_id": job["run_id"], "job_id": job["id"]})
    listed = await artifacts.find_artifacts(tx, {job["repository_id"]}, choice, limit=ARTIFACTS_SHOWN)
    return JobOnPage(job=job, log=log, github=subject.github, more=more, artifacts=listed)


async def read_job_blocks(tx: Transaction, subject: JobSubject) -> list[Block]:
    """Return what is known of a job besides the job itself: its artifacts, log, tests, machine and documents."""
    return order_blocks(
        await artifact_pages.job_artifacts(tx, subject),
        await logs.job_section(tx, subject),
        await tests.job_blocks(tx, subject),
        await usage.show_job(tx, subject),
        await show_job_documents(tx, subject),
    )


def show_job(page: JobOnPage) -> dict[str, Any]:
    """Return what the page shows."""
    job = page.job
    return {
        "job": job,
        "parsed": job_names.parse_name(job["workflow_name"], job["name"] or ""),
        "log": page.log,
        "origin": page.origin,
        "steps": job_reads.steps_of_job(job),
        "tone": job_reads.conclusion_tone(job["conclusion"]),
        "took": job_reads.seconds_between(job["started_at"], job["completed_at"]),
        "queued": job_reads.seconds_between(job["created_at"], job["started_at"]),
        "blocks": page.blocks,
    }


def answer_job(page: JobOnPage) -> CiJobAnswer:
    """Return the job as it is sent."""
    log, more = page.log, page.more
    return CiJobAnswer(
        job=fill_struct(CiJob, page.job),
        log=Log(state=log.state, reason=log.reason, bytes=log.bytes, lines=more.get("lines")),
        verdicts=more.get("verdicts", []),
        artifacts=[artifact_answer(listed, page.job["repo"], page.github) for listed in page.artifacts],
    )


def _job_refresh(page: JobOnPage) -> int:
    return RUNNING_REFRESH if page.job["status"] != "completed" or page.log.state == FetchState.WANTED else 0


JOB_VIEW = View(
    read=read_job,
    parameters=(REPO, JOB_ID),
    page=Page(
        path=r"/{owner}/{repo}/job/{id:\d+}", template="job.html", values=show_job, refresh=_job_refresh
    ),
    json=Json(
        path=r"/api/ci/jobs/{owner}/{repo}/{id:\d+}",
        answer=answer_job,
        content=CiJobAnswer,
        name="ciJob",
        summary="A job of a repository's own CI",
        topic=op.CI,
        refusals=(NO_ARTIFACTS,),
        link=lambda page: {"repo": page.job["repo"], "id": page.job["id"]},
    ),
)


async def read_other_job(query: Query) -> OtherJobOnPage:
    """Read a job; raises Rejected 404."""
    repo, tx = query[REPO], query.tx
    job = await job_cells.find_other_job(
        tx, await job_reads.visible_ids_of(query, repo), -query[OTHER_JOB_ID]
    )
    if job is None:
        raise job_reads.not_known("job")
    subject = JobSubject(
        repo=repo,
        repository_id=job["repository_id"],
        job_id=job["job_id"],
        run_id=job["run_id"],
        run_attempt=job["attempt"],
        name=job["job"],
        conclusion=CONCLUSIONS[job["conclusion"]] or None,
        steps=None,
        github=web_url(query.settings.github_api_url),
        query=dict(query.request.query),
        settings=query.settings,
    )
    added = await read_job_blocks(tx, subject)
    log = await job_reads.asked_log_state(tx, job["repository_id"], job["job_id"])
    return OtherJobOnPage(repo=repo, job=job, log=log, blocks=added)


def show_other_job(page: OtherJobOnPage) -> dict[str, Any]:
    """Return what the page shows."""
    job = page.job
    return {
        "repo": page.repo,
        "job": job,
        "word": page.conclusion or STATES[job["state"]],
        "tone": job_reads.conclusion_tone(page.conclusion or None),
        "took": job_reads.seconds_between(job["started_at"], job["completed_at"]),
        "queued": None if job["held"] else job_reads.seconds_between(job["queued_at"], job["started_at"]),
        "log": page.log,
        "runner": (job["runner_label"] or "").replace(LABEL_SEPARATOR, f"{LABEL_SEPARATOR} "),
        "blocks": page.blocks,
    }


def _other_job_refresh(page: OtherJobOnPage) -> int:
    waits = page.log is not None and page.log.state == FetchState.WANTED
    return RUNNING_REFRESH if waits or not page.conclusion else 0


OTHER_JOB_VIEW = View(
    read=read_other_job,
    parameters=(REPO, OTHER_JOB_ID),
    page=Page(
        path=r"/{owner}/{repo}/other-job/{id:\d+}",
        template="other_job.html",
        values=show_other_job,
        refresh=_other_job_refresh,
    ),
)


async def read_upload(query: Query) -> UploadOnPage:
    """Read an upload; raises Rejected 404."""
    tx, repo = query.tx, query[REPO]
    owners = await job_reads.visible_ids_of(query, repo)
    upload = await job_reads.shown_upload(query.request, tx, owners, repo, query[UPLOAD_ID])
    dispatch = (await dispatches.get_by_id(tx, [upload["dispatch_id"]])).get(upload["dispatch_id"])
    if dispatch and query.hidden.has(dispatch["upstream_repo"]):
        dispatch = None  # pull requests of a private upstream are not shown with a public backend's log
    subject = job_reads.upload_subject(query.request, upload)
    return UploadOnPage(
        upload=upload,
        state=await job_reads.upload_state(tx, upload),
        dispatch=dispatch,
        blocks=await read_job_blocks(query.tx, subject),
    )


def show_upload(page: UploadOnPage) -> dict[str, Any]:
    """Return what the page shows."""
    return {
        "upload": page.upload,
        "state": page.state,
        "dispatch": page.dispatch,
        "blocks": page.blocks,
    }


def _upload_refresh(page: UploadOnPage) -> int:
    return RUNNING_REFRESH if page.state.state == FetchState.WANTED else 0


UPLOAD_VIEW = View(
    read=read_upload,
    parameters=(REPO, UPLOAD_ID),
    page=Page(
        path=r"/{owner}/{repo}/upload/{id:\d+}",
        template="upload.html",
        values=show_upload,
        refresh=_upload_refresh,
    ),
)

JOB_VIEWS = (
    JOB_VIEW,
    artifact_pages.ARTIFACTS_VIEW,
    artifact_pages.STORAGE_VIEW,
    run.RUN_VIEW,
    UPLOAD_VIEW,
)


async def has_artifacts(query: Query, repo: str) -> bool:
    """Whether artifacts of a repository are known."""
    return await job_reads.has_rows(query, repo, ci_artifact.c.repository_id)
