"""A job or run of a repository's own CI as its page and its JSON show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core.errors import Rejected
from bot.core.escaping import web_url
from bot.core.json_fields import Kind, read_member
from bot.evidence.collect import fetches, uploads
from bot.ingest import repositories
from bot.jobs import collection, runs
from bot.jobs.collection import FetchState, state_in_words
from bot.web import access
from bot.web.access import CONTEXT
from bot.web.blocks import JobSubject

if TYPE_CHECKING:
    from collections.abc import Collection

    import sqlalchemy as sa
    from aiohttp import web

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.evidence.collect.tables import FetchRow, UploadRow
    from bot.ingest.record_rows import WorkflowJobRow, WorkflowRunRow
    from bot.web.access import Hidden
    from bot.web.parameters import Query

TONES = {"success": "good", "failure": "bad", "timed_out": "bad", "startup_failure": "bad", None: "wait"}
MOST_STEPS = 500


@dataclass(frozen=True, kw_only=True)
class LogState:
    """How far a job's log has come."""

    state: str
    reason: str
    bytes: int | None


@dataclass(frozen=True, kw_only=True)
class JobStep:
    """A step of a job."""

    number: int
    name: str
    outcome: str
    tone: str
    seconds: float | None


async def visible_ids(request: web.Request, tx: Transaction, repo: str) -> set[int]:
    """Return the ids of a repository that this request may see; none where it may see none.

    A repository that is not known to be public is treated as a private one.
    """
    return await _visible_of(request, tx, await access.hidden_from(request, tx, repo), repo)


async def visible_ids_of(query: Query, repo: str) -> set[int]:
    """Return the same ids for the repository in the path, or the one that a parameter names."""
    return await _visible_of(query.request, query.tx, query.hidden, repo)


async def has_rows(query: Query, repo: str, repository_id: sa.Column[int]) -> bool:
    """Whether a table has a row of a repository that the request may see; the column holds its repositories."""
    return await runs.has_rows(query.tx, repository_id, await visible_ids_of(query, repo))


def not_known(what: str) -> Rejected:
    """Return the refusal for what is private or unknown: the same for both."""
    return Rejected(404, "not_found", f"no {what} of that id may be shown here")


async def shown_job(tx: Transaction, owners: Collection[int], job_id: int) -> WorkflowJobRow:
    """Return a job of one of some repositories; raises Rejected 404."""
    job = await runs.find_job(tx, owners, job_id)
    if job is None:
        raise not_known("job")
    return job


async def shown_attempts(tx: Transaction, owners: Collection[int], run_id: int) -> list[WorkflowRunRow]:
    """Return the attempts of a run of one of some repositories, newest first; raises Rejected 404."""
    if attempts := await runs.attempts_of_run(tx, owners, run_id):
        return attempts
    for owner in sorted(owners):
        if jobs := await runs.jobs_of_run(tx, owner, run_id):
            return runs.attempts_from_jobs(jobs, run_id)
    raise not_known("run")


async def shown_upload(
    request: web.Request, tx: Transaction, owners: Collection[int], repo: str, identifier: int
) -> UploadRow:
    """Return an uploaded file; `owners` are what this request may see of the backend. Raises Rejected 404."""
    upload = await uploads.find_upload(tx, identifier)
    if upload is None or upload["backend_key"] != repo.casefold():
        raise not_known("upload")
    if upload["repository_id"] not in owners and not access.reads_private(request):
        raise not_known("upload")
    return upload


async def log_state(tx: Transaction, settings: Settings, of: WorkflowJobRow) -> LogState:
    """Return how far a job's log has come; if it was never requested, why not."""
    if known := await asked_log_state(tx, of["repository_id"], of["id"]):
        return known
    if of["status"] != "completed":
        return LogState(state=FetchState.WANTED, reason="GitHub has it once the job has ended", bytes=None)
    refused = await collection.run_refusal(tx, settings, of["repo"], workflow=of["workflow_name"])
    refused = refused or collection.log_refusal(settings, of["conclusion"])
    if refused:
        return LogState(state=FetchState.SKIPPED, reason=refused, bytes=None)
    return LogState(state=FetchState.WANTED, reason="not asked for yet", bytes=None)


async def asked_log_state(tx: Transaction, repository_id: int, job_id: int) -> LogState | None:
    """Return how far the log of a job has come, None where it was never requested."""
    row = await fetches.find_fetch(tx, repository_id, "log", job_id)
    return _log_state(row) if row else None


async def upload_state(tx: Transaction, of: UploadRow) -> LogState:
    """Return how far the reading of an uploaded file has come."""
    row = await fetches.find_fetch(tx, of["repository_id"], "upload", of["id"])
    return _log_state(row) if row else LogState(state=FetchState.WANTED, reason="not read yet", bytes=None)


def upload_subject(request: web.Request, of: UploadRow) -> JobSubject:
    """Return the subject for what features add to the job of an uploaded file."""
    return JobSubject(
        repo=of["backend"],
        repository_id=of["repository_id"],
        job_id=-of["id"],
        run_id=0,
        run_attempt=of["run_attempt"],
        name=of["job"],
        conclusion=None,
        steps=None,
        github=web_url(request.app[CONTEXT].settings.github_api_url),
        query=dict(request.query),
        settings=request.app[CONTEXT].settings,
    )


def steps_of_job(of: WorkflowJobRow) -> list[JobStep]:
    """Return a job's steps in order, reading GitHub's answer field by field."""
    steps: list[JobStep] = []
    for step in of["steps"][:MOST_STEPS] if isinstance(of["steps"], list) else []:
        started, ended = (
            read_member(step, ("started_at",), Kind.TIME),
            read_member(step, ("completed_at",), Kind.TIME),
        )
        conclusion = read_member(step, ("conclusion",), Kind.TEXT)
        steps.append(
            JobStep(
                number=read_member(step, ("number",), Kind.INT) or len(steps) + 1,
                name=read_member(step, ("name",), Kind.TEXT) or "",
                outcome=conclusion or read_member(step, ("status",), Kind.TEXT) or "",
                tone=conclusion_tone(conclusion),
                seconds=seconds_between(started, ended),
            )
        )
    return steps


def conclusion_tone(conclusion: str | None) -> str:
    """Return the colour and sign of a conclusion."""
    return TONES.get(conclusion, "idle")


def seconds_between(started: int | None, ended: int | None) -> float | None:
    """Return how long something took, None where that is not known."""
    return None if started is None or ended is None else max(ended - started, 0) / 1000


def job_subject(request: web.Request, of: WorkflowJobRow) -> JobSubject:
    """Return the subject for what features add to a job."""
    return JobSubject(
        repo=of["repo"],
        repository_id=of["repository_id"],
        job_id=of["id"],
        run_id=of["run_id"] or 0,
        run_attempt=of["run_attempt"] or 1,
        name=of["name"] or "",
        conclusion=of["conclusion"],
        steps=of["steps"],
        github=web_url(request.app[CONTEXT].settings.github_api_url),
        query=dict(request.query),
        settings=request.app[CONTEXT].settings,
    )


async def _visible_of(request: web.Request, tx: Transaction, hidden: Hidden, repo: str) -> set[int]:
    owners = await repositories.read_ids(tx, repo)
    if access.reads_private(request):
        return owners
    visible = set()
    for identifier in owners:
        if hidden.has(repo, identifier):
            continue
        if (await runs.repository_facts(tx, identifier)).private is False:
            visible.add(identifier)
    return visible


def _log_state(row: FetchRow) -> LogState:
    words = state_in_words(row["state"], row["error"], tries=row["tries"])
    return LogState(state=row["state"], reason=words, bytes=row["size"])
