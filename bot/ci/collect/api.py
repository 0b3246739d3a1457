"""GET /api/ci/jobs, /api/ci/artifacts, /api/ci/storage: what was collected, as JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from aiohttp import web
from msgspec import Meta, Struct

from bot.ci.collect import artifact_kinds, artifact_reads, job_reads
from bot.ci.collect.artifact_reads import Choice, ListedArtifact
from bot.ci.collect.states import State
from bot.core.errors import Rejected
from bot.core.feature import sections
from bot.core.links import web_url
from bot.web import parameters
from bot.web.answers import Answer, Time, fill, one_of, send
from bot.web.app_keys import CONTEXT
from bot.web.render_thread import in_render_thread

ROWS = 100  # unless ?limit= says otherwise
LONGEST_NAME = 500  # characters
DAY = 86_400_000  # milliseconds


class Artifact(Struct, frozen=True, kw_only=True):
    """An artifact of a run."""

    id: int
    run_id: int
    run_attempt: int
    job_id: Annotated[int | None, Meta(description="null: it could not be attributed to a job")]
    name: Annotated[str, Meta(description="as the run chose it")]
    kind: Annotated[str, one_of(sorted(artifact_kinds.KNOWN))]
    size_in_bytes: int
    digest: str | None
    created_at: Time | None
    updated_at: Time | None
    expires_at: Time | None
    expired: bool
    head_sha: str
    trusted: Annotated[bool, Meta(description="of the repository's own run on a trusted branch")]
    flags: list[str]
    state: Annotated[str, one_of([state.value for state in State])]
    reason: Annotated[str, Meta(description="the state in words")]
    url: Annotated[str, Meta(description="GitHub's page to download it from")]


class Artifacts(Answer, frozen=True, kw_only=True):
    """Artifacts, newest first"""

    artifacts: list[Artifact]
    next: Annotated[str | None, Meta(description="the `before` of the following page")]


class Log(Struct, frozen=True, kw_only=True):
    """A job's log, as far as it is here."""

    state: Annotated[str, one_of([state.value for state in State])]
    reason: Annotated[str, Meta(description="the state in words")]
    bytes: int | None
    lines: int | None


class CiJob(Struct, frozen=True, kw_only=True):
    """A job of a repository's own CI."""

    id: int
    repo: str
    run_id: int | None
    run_attempt: int | None
    name: str | None
    workflow_name: str | None
    status: str | None
    conclusion: str | None
    head_sha: str | None
    head_branch: str | None
    labels: list[str] | None
    runner_name: str | None
    html_url: str | None
    created_at: Time | None
    started_at: Time | None
    completed_at: Time | None


class CiJobAnswer(Answer, frozen=True, kw_only=True):
    """A job with its log, why it failed, and its artifacts"""

    job: CiJob
    log: Log
    verdicts: Annotated[list[dict[str, Any]], Meta(description="why it failed, the likeliest first")]
    artifacts: list[Artifact]


class StorageDay(Struct, frozen=True, kw_only=True):
    """What one workflow left behind on one day."""

    day: Annotated[str, Meta(description="of creation, UTC", examples=["2026-01-31"])]
    workflow: str
    artifacts: int
    bytes: int


class Storage(Answer, frozen=True, kw_only=True):
    """What fills a repository's artifact storage, newest day first"""

    days: int
    storage: list[StorageDay]


@in_render_thread
async def job(request: web.Request) -> web.Response:
    """Answer with a job, its log's state, verdicts and artifacts."""
    context = request.app[CONTEXT]
    async with context.store.read() as tx:
        found = await job_reads.job(request, tx)
        log = await job_reads.log_state(request, tx, found)
        subject = job_reads.subject(request, found)
        more: dict[str, Any] = {}
        for add in sections(context.features, "job_json"):
            more |= await add(tx, subject)
        choice = Choice(run_id=found["run_id"], job_id=found["id"])
        listed = await artifact_reads.listed(tx, {found["repository_id"]}, choice, limit=ROWS)
    return send(
        CiJobAnswer(
            job=fill(CiJob, found),
            log=Log(state=log.state, reason=log.reason, bytes=log.bytes, lines=more.get("lines")),
            verdicts=more.get("verdicts", []),
            artifacts=[_artifact(one, found["repo"], subject.github) for one in listed],
        )
    )


@in_render_thread
async def artifacts(request: web.Request) -> web.Response:
    """Answer with a repository's artifacts, newest first."""
    context, repo = request.app[CONTEXT], parameters.repo(request)
    limit = parameters.limit(request, default=ROWS)
    position = parameters.before(request, [False])
    choice = Choice(
        run_id=_number(request, "run_id"),
        sha=parameters.sha(request),
        name=parameters.given(request, "name")[:LONGEST_NAME] or None,
        kind=parameters.choice(request, "kind", ["", *sorted(artifact_kinds.KNOWN)]) or None,
        before=int(position[0]) if position else None,
    )
    async with context.store.read() as tx:
        owners = await job_reads.visible(request, tx, repo)
        if not owners:
            raise Rejected(404, "not_found", f"nothing of {repo} may be shown")
        found = await artifact_reads.listed(tx, owners, choice, limit=limit + 1)
    github = web_url(context.settings.github_api_url)
    more = len(found) > limit
    return send(
        Artifacts(
            artifacts=[_artifact(one, repo, github) for one in found[:limit]],
            next=parameters.following([found[limit - 1]["artifact"]["id"]]) if more else None,
        )
    )


@in_render_thread
async def storage(request: web.Request) -> web.Response:
    """Answer with the artifacts' size by day and workflow."""
    context, repo, days = request.app[CONTEXT], parameters.repo(request), parameters.days(request)
    async with context.store.read() as tx:
        owners = await job_reads.visible(request, tx, repo)
        if not owners:
            raise Rejected(404, "not_found", f"nothing of {repo} may be shown")
        found = await artifact_reads.storage(tx, owners, since=tx.now - days * DAY)
    rows = [
        StorageDay(
            day=f"{datetime.fromtimestamp(row['day'] * 86_400, UTC):%Y-%m-%d}",
            workflow=row["workflow"],
            artifacts=row["artifacts"],
            bytes=row["bytes"],
        )
        for row in found
    ]
    return send(Storage(days=days, storage=rows))


def _artifact(one: ListedArtifact, repo: str, github: str) -> Artifact:
    artifact = one["artifact"]
    url = artifact_reads.page_url(github, repo, artifact)
    return fill(Artifact, artifact, state=one["state"], reason=one["reason"], url=url)


def _number(request: web.Request, name: str) -> int | None:
    text = parameters.given(request, name)
    if not text:
        return None
    found = parameters.number(text)
    if not found:
        raise Rejected(400, "invalid_parameter", f"{name} must be one of GitHub's ids")
    return found


routes: list[web.RouteDef] = [
    web.get(r"/api/ci/jobs/{owner}/{repo}/{id:\d+}", job),
    web.get("/api/ci/artifacts/{owner}/{repo}", artifacts),
    web.get("/api/ci/storage/{owner}/{repo}", storage),
]
