"""Artifacts: listing what an attempt of a run left behind, fetching those of a kind that some feature reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from bot.core.errors import GitHubRefused, NotInstalled
from bot.core.json_fields import Kind, read_member
from bot.core.masking import mask
from bot.db.exports import COPIED, Export, Shape, StoredObject, json_line, object_key, repo_key
from bot.db.rows import fields, select
from bot.evidence.collect import fetch_file, fetches
from bot.evidence.collect.fetch_file import NotThere, Wanted
from bot.evidence.collect.parser_pool import WORKSPACE
from bot.evidence.collect.receivers import Fetched, Job, attempt_of, attribute_artifact, partial_number
from bot.evidence.collect.tables import ArtifactRow, WorkflowDay, ci_artifact, ci_fetch, ci_storage_day
from bot.github import responses
from bot.ingest import deliveries, inbox, repositories
from bot.jobs import collection, runs, settings
from bot.jobs.collection import FetchState, state_in_words
from bot.jobs.runs import is_trusted_run
from bot.jobs.settings import CollectSettings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.context import Context
    from bot.db.exports import ExportedRow
    from bot.db.transaction import Transaction
    from bot.evidence.collect.receivers import Receiver
    from bot.github.client import Client
    from bot.ingest.record_rows import WorkflowJobRow, WorkflowRunRow
    from bot.queue.tasks import Task

DAY = 86_400_000  # milliseconds
INDEXED_ONLY = "indexed only: nothing reads this kind"
MOST_COMPARED = 30  # names looked up on the base for one page
CHANGING = ("job_id", "kind", "size_in_bytes", "digest", "updated_at", "expires_at", "expired", "flags")
ARTIFACT, FETCH, STORAGE = ci_artifact.c, ci_fetch.c, ci_storage_day.c
LISTED = (
    select(ArtifactRow, ci_artifact)
    .add_columns(FETCH.state, FETCH.error, FETCH.tries)
    .join_from(
        ci_artifact,
        ci_fetch,
        (FETCH.repository_id == ARTIFACT.repository_id)
        & (FETCH.kind == "artifact")
        & (FETCH.object_id == ARTIFACT.id),
        isouter=True,
    )
    .order_by(ARTIFACT.id.desc())
)
EXPORTS = (
    Export(
        name="artifacts",
        table=ci_artifact,
        day="created_at",
        shapes={
            "upstream": Shape(make="bot.evidence.collect.artifacts:copy_artifact", most=500),
            "clickhouse.ootbot": COPIED,
        },
    ),
)

PAGE, MOST_PAGES = 100, 100
BATCH = 200  # rows of one transaction
PAUSE = 0.02  # seconds between two of them
AGAIN = (60.0, 600.0)  # seconds until the second and third pass: uploads may show late
DIGEST_LENGTH = 100
WHILE_RUNNING = frozenset({"junit", "runreport"})  # kinds that are read while their job runs


class ListedArtifact(NamedTuple):
    """An artifact, and how far its fetching has come."""

    artifact: ArtifactRow
    state: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ArtifactChoice:
    """Which artifacts of a repository are wanted."""

    same: Mapping[str, int | str | None] = field(default_factory=dict)  # by column, such as run_id; None: any
    sha: str | None = None  # or its beginning
    before: int | None = None  # an id


@dataclass(frozen=True, kw_only=True)
class _ListedRun:
    """An attempt of a run, and what is known about it."""

    row: WorkflowRunRow
    started: Mapping[int, int | None]  # its attempts
    jobs: Sequence[Job]
    trusted: bool


async def find_artifact(tx: Transaction, repo: str, artifact_id: int) -> ArtifactRow | None:
    """Return an artifact by any name of its repository."""
    owners = sorted(await repositories.read_ids(tx, repo))
    query = select(ArtifactRow, ci_artifact).where(
        ARTIFACT.repository_id.in_(owners), ARTIFACT.id == artifact_id
    )
    return await tx.fetch_first(query)


async def record_artifacts(tx: Transaction, rows: Sequence[ArtifactRow], *, workflow: str) -> int:
    """Insert or update artifacts of one repository; returns how many are new: only those count as storage."""
    if not rows:
        return 0
    query = sa.select(ARTIFACT.id).where(
        ARTIFACT.repository_id == rows[0]["repository_id"], ARTIFACT.id.in_([row["id"] for row in rows])
    )
    known = set((await tx.run(query)).scalars())
    await tx.upsert(ci_artifact, rows, replaced=CHANGING)
    tx.note_changed("ci_artifact", rows)
    new = [row for row in rows if row["id"] not in known]
    for row in new:
        await _count(tx, row, workflow)
    return len(new)


async def find_artifacts(
    tx: Transaction, repositories: Collection[int], choice: ArtifactChoice, *, limit: int
) -> list[ListedArtifact]:
    """Return artifacts, newest first."""
    query = LISTED.where(ARTIFACT.repository_id.in_(sorted(repositories)), *_conditions(choice)).limit(limit)
    listed = []
    for row in await tx.rows(query):
        state, error, tries = (row.pop(name) for name in ("state", "error", "tries"))
        words = INDEXED_ONLY if state is None else state_in_words(state, error, tries=tries or 0)
        artifact: ArtifactRow = {name: row[name] for name in fields(ArtifactRow)}  # type: ignore[assignment]
        listed.append(ListedArtifact(artifact, state or FetchState.SKIPPED.value, words))
    return listed


async def storage_by_workflow(
    tx: Transaction, repositories: Collection[int], *, since: int
) -> list[WorkflowDay]:
    """Return the artifacts created since a time, counted by day and workflow, newest first."""
    count, size = (
        sa.cast(sa.func.sum(column), sa.BigInteger) for column in (STORAGE.artifacts, STORAGE.bytes)
    )
    query = (
        select(WorkflowDay, ci_storage_day, artifacts=count, bytes=size)
        .where(STORAGE.repository_id.in_(sorted(repositories)), STORAGE.day >= since // DAY)
        .group_by(STORAGE.day, STORAGE.workflow)
        .order_by(STORAGE.day.desc(), size.desc(), STORAGE.workflow)
    )
    return await tx.fetch(query)


async def base_sizes(tx: Transaction, artifacts: Sequence[ArtifactRow]) -> dict[int, int]:
    """Return, by artifact id, the size of the last earlier artifact of that name on a trusted run."""
    sizes = {}
    for artifact in artifacts[:MOST_COMPARED]:
        query = sa.select(ARTIFACT.size_in_bytes).where(
            ARTIFACT.repository_id == artifact["repository_id"],
            ARTIFACT.name == artifact["name"],
            ARTIFACT.id < artifact["id"],
            ARTIFACT.trusted,
            ARTIFACT.head_sha != artifact["head_sha"],
        )
        if base := (await tx.run(query.order_by(ARTIFACT.id.desc()).limit(1))).scalar():
            sizes[artifact["id"]] = base
    return sizes


def copy_artifact(export: Export, row: ExportedRow) -> list[StoredObject]:
    """Return an artifact as an object for sinks."""
    key = "/".join((export.name, repo_key(row["repo"]), object_key(row["run_id"], row["id"])))
    return [StoredObject(key=key, content=lambda: (json_line(dict(row)),))]


async def list_artifacts(context: Context, task: Task) -> None:
    """List the artifacts of a run; where there may be more, list them up to three times."""
    repo, run_id, attempt = fetches.parse_run_key(task.key)
    async with context.store.read() as tx:
        row = await runs.find_attempt(tx, run_id, attempt)
        if row is None or row["repo"].lower() != repo.lower():
            return
        refused = await collection.run_refusal(
            tx, context.settings, row["repo"], workflow=row["name"], path=row["path"]
        )
        if refused and not context.settings.of(CollectSettings).ci:
            return  # once collecting is switched on, the sweep finds the runs of the last days
        before = await fetches.find_listing(tx, row)
    if refused:
        await _record(context, row, "skipped", error=refused)
        return
    client = context.app_for(row["repo"]).client(row["repo"], since=row["received_at"], actions="read")
    try:
        listed = await read_pages(
            context, client, row["repo"], f"actions/runs/{run_id}/artifacts", "artifacts"
        )
        jobs = await read_pages(
            context, client, row["repo"], f"actions/runs/{run_id}/attempts/{attempt}/jobs", "jobs"
        )
    except GitHubRefused as error:
        await _cannot_list(context, row, error)
        return
    of_run, known = await _described(context, row)
    await _store_missed(context, row, jobs, known)
    await _store_artifacts(context, of_run, listed)
    await _logs(context, known, attempt)
    grew = before is not None and len(listed) > before["artifacts"]
    late = not listed and any("test" in (job["name"] or "").lower() for job in known)

    async def record_pass(tx: Transaction) -> None:
        passes = await fetches.record_listing(tx, row, "listed", artifacts=len(listed))
        if (grew or late) and passes <= len(AGAIN):
            tx.enqueue("artifacts", task.key, delay=AGAIN[passes - 1])

    await context.store.write(record_pass)


async def read_pages(
    context: Context, client: Client, repo: str, path: str, name: str, *, most: int = MOST_PAGES
) -> list[dict[str, Any]]:
    """Return all pages of a list, up to a limit; each costs a call of the budget."""
    entries: list[dict[str, Any]] = []
    for page in range(1, most + 1):
        await collection.spend_call(context, repo)
        url = client.path(path + "{?per_page,page}")
        answer = await client.getitem(url, {"per_page": str(PAGE), "page": str(page)})
        listed = [item for item in answer.get(name) or [] if isinstance(item, dict)]
        entries += listed
        if len(listed) < PAGE:
            break
    return entries


async def store_running(context: Context, row: WorkflowRunRow, listed: Sequence[dict[str, Any]]) -> None:
    """Store the artifacts of a run that is still going on, and request them."""
    of_run, _ = await _described(context, row)
    await _store_artifacts(context, of_run, listed)


async def fetch_artifact(context: Context, task: Task) -> None:
    """Fetch, parse and store an artifact."""
    repo, artifact_id = fetches.parse_object_key(task.key)
    context.resource(WORKSPACE).shares.check(repo.casefold())
    async with context.store.transaction() as tx:
        artifact = await find_artifact(tx, repo, artifact_id)
        if artifact is None:
            return
        row = await fetches.begin_try(tx, artifact["repository_id"], "artifact", artifact_id)
        facts = await runs.repository_facts(tx, artifact["repository_id"])
    if row is None:
        return
    reader = fetch_file.reader_of(context, artifact["kind"])
    private = facts.private is not False
    if artifact["expired"] or (artifact["expires_at"] or context.clock.now() + 1) <= context.clock.now():
        await fetch_file.end_fetch(context, row, FetchState.EXPIRED, describe_expiry(artifact))
        return
    try:
        await fetch_file.fetch_file(
            context,
            row,
            _wanted_artifact(artifact, repo, reader.receiver if reader else None, private=private),
        )
    except NotThere as error:
        if error.status == 410:
            await fetch_file.end_fetch(context, row, FetchState.EXPIRED, describe_expiry(artifact))
        elif error.status == 404 and _is_young(artifact, context.clock.now()):
            await fetch_file.wait_for_next_try(context, row, "GitHub does not have it yet", responses.LATEST)
        elif error.status == 404:
            await fetch_file.end_fetch(context, row, FetchState.ABSENT, "GitHub no longer has it")
        else:
            await fetch_file.end_fetch(context, row, FetchState.BROKEN, f"GitHub answered {error.status}")


def describe_expiry(artifact: ArtifactRow) -> str:
    """Return when GitHub deleted an artifact."""
    if artifact["expires_at"] is None:
        return "GitHub has deleted it"
    return f"GitHub deleted it on {datetime.fromtimestamp(artifact['expires_at'] / 1000, UTC):%Y-%m-%d}"


async def _count(tx: Transaction, row: ArtifactRow, workflow: str) -> None:
    counted = {
        "repository_id": row["repository_id"],
        "day": (row["created_at"] or tx.now) // DAY,
        "workflow": workflow,
        "artifacts": 1,
        "bytes": row["size_in_bytes"],
    }
    await tx.upsert(ci_storage_day, [counted], added=("artifacts", "bytes"))


def _conditions(choice: ArtifactChoice) -> list[sa.ColumnElement[bool]]:
    conditions = [ARTIFACT[name] == value for name, value in choice.same.items() if value is not None]
    if choice.sha is not None:
        # the range of its beginning
        conditions += [choice.sha <= ARTIFACT.head_sha, ARTIFACT.head_sha < choice.sha + "g"]
    if choice.before is not None:
        conditions.append(ARTIFACT.id < choice.before)
    return conditions


async def _cannot_list(context: Context, row: WorkflowRunRow, error: GitHubRefused) -> None:
    words = fetch_file.describe_forbidden(row["repo"], installed=not isinstance(error, NotInstalled))
    if error.gone:
        await _record(context, row, "absent", error="GitHub no longer knows the run")
    else:
        await _record(context, row, "forbidden", error=words)


async def _record(context: Context, row: WorkflowRunRow, state: str, *, error: str) -> None:
    async with context.store.transaction() as tx:
        await fetches.record_listing(tx, row, state, error=error)


async def _store_missed(
    context: Context,
    row: WorkflowRunRow,
    listed: Sequence[dict[str, Any]],
    known: Sequence[WorkflowJobRow],
) -> None:
    """Store the jobs whose deliveries were lost, as if they had arrived."""
    ended = {job["id"] for job in known if job["status"] == "completed"}
    missed = [job for job in listed if job.get("status") == "completed" and job.get("id") not in ended]
    if not missed:
        return
    repository = {"id": row["repository_id"], "full_name": row["repo"]}
    async with context.store.transaction() as tx:
        for job in missed:
            await inbox.store_delivery(tx, deliveries.delivery_of_answer("workflow_job", job, repository))


async def _described(context: Context, row: WorkflowRunRow) -> tuple[_ListedRun, list[WorkflowJobRow]]:
    """Return what is known about a run, and its jobs."""
    async with context.store.read() as tx:
        known = await runs.jobs_of_run(tx, row["repository_id"], row["id"])
        trusted = await is_trusted_run(tx, context.settings, row)
        started = await runs.attempt_starts(tx, row["repository_id"], row["id"])
    jobs = [Job(job["id"], job["name"] or "", job["run_attempt"] or 1) for job in known]
    return _ListedRun(row=row, started=started, jobs=jobs, trusted=trusted), known


async def _store_artifacts(context: Context, of_run: _ListedRun, listed: Sequence[dict[str, Any]]) -> None:
    """Store artifacts and request those of a known kind, a batch at a time."""
    kinds = context.settings.of(CollectSettings).ci_artifacts
    made = [artifact for entry in listed if (artifact := _artifact(of_run, entry, kinds))]
    for start in range(0, len(made), BATCH):
        batch = made[start : start + BATCH]
        async with context.store.transaction() as tx:
            await record_artifacts(tx, batch, workflow=of_run.row["name"] or "")
            await _want_artifacts(tx, context, of_run.row["repo"], batch)
        await context.clock.sleep(PAUSE)


async def _want_artifacts(tx: Transaction, context: Context, repo: str, batch: Sequence[ArtifactRow]) -> None:
    """Request the artifacts of a kind that a feature reads; refuse those of another head."""
    for artifact in batch:
        if fetch_file.reader_of(context, artifact["kind"]) is None or _is_passing(artifact):
            continue
        key = ("repository_id", "run_id", "run_attempt", "job_id")
        intent = {name: artifact[name] for name in key} | {"kind": "artifact", "object_id": artifact["id"]}  # type: ignore[literal-required]
        await fetches.want_fetches(tx, [intent])
        row = await fetches.find_fetch(tx, artifact["repository_id"], "artifact", artifact["id"])
        if row is None or row["state"] != FetchState.WANTED:
            continue
        if "foreign_head" in artifact["flags"]:
            await fetches.settle_fetch(
                tx, row, FetchState.REFUSED, error="it is of another repository than its run"
            )
        else:
            tx.enqueue("collect", fetches.object_key(repo, artifact["id"]))


def _is_passing(artifact: ArtifactRow) -> bool:
    """Whether an artifact only shows a job's progress, and its kind is read once the job has ended."""
    return partial_number(artifact["name"]) is not None and artifact["kind"] not in WHILE_RUNNING


def _artifact(of_run: _ListedRun, listed: dict[str, Any], kinds: settings.Kinds) -> ArtifactRow | None:
    """Return the row of an artifact; identity comes from our record of the run, never from the artifact."""
    row = of_run.row
    identifier, name = read_member(listed, ("id",), Kind.INT), read_member(listed, ("name",), Kind.TEXT)
    if identifier is None or name is None:
        return None
    created_at = read_member(listed, ("created_at",), Kind.TIME)
    attempt = attempt_of(created_at, of_run.started)
    attribution = attribute_artifact(name, of_run.jobs, attempt=attempt, run_id=row["id"])
    head = read_member(listed, ("workflow_run", "head_repository_id"), Kind.INT)
    foreign = row["head_repository_id"] is not None and head not in {None, row["head_repository_id"]}
    digest = read_member(listed, ("digest",), Kind.TEXT)
    return {
        "repository_id": row["repository_id"],
        "id": identifier,
        "run_id": row["id"],
        "run_attempt": attempt,
        "job_id": attribution.job_id,
        "name": mask(name),
        "kind": settings.kind_of(name, kinds),
        "size_in_bytes": max(read_member(listed, ("size_in_bytes",), Kind.INT) or 0, 0),
        "digest": digest and digest[:DIGEST_LENGTH],
        "created_at": created_at,
        "updated_at": read_member(listed, ("updated_at",), Kind.TIME),
        "expires_at": read_member(listed, ("expires_at",), Kind.TIME),
        "expired": bool(read_member(listed, ("expired",), Kind.BOOL)),
        "head_sha": row["head_sha"] or "",
        "trusted": of_run.trusted and not foreign,
        "flags": [*attribution.flags, *(["foreign_head"] if foreign else [])],
    }


async def _logs(context: Context, known: Sequence[WorkflowJobRow], attempt: int) -> None:
    """With CI_LOGS=all, request the logs of passed jobs; those of failed ones have been requested."""
    if context.settings.of(CollectSettings).ci_logs != "all":
        return
    ended = [job for job in known if job["run_attempt"] == attempt and job["status"] == "completed"]
    async with context.store.transaction() as tx:
        for job in ended:
            if not collection.never_started(job):
                tx.enqueue("log", fetches.object_key(job["repo"], job["id"]))


def _is_young(artifact: ArtifactRow, now: int) -> bool:
    """Whether GitHub may not yet serve an artifact that it has just listed."""
    return artifact["created_at"] is not None and now - artifact["created_at"] < responses.YOUNG_FOR


def _wanted_artifact(artifact: ArtifactRow, repo: str, receiver: Receiver | None, *, private: bool) -> Wanted:
    prefix = (receiver.blob_prefix if receiver else "") or "artifact"
    run = f"{artifact['repository_id']}/{artifact['run_id']}/{artifact['run_attempt']}"
    return Wanted(
        fetched=Fetched(
            repository_id=artifact["repository_id"],
            repo=repo,
            source="artifact",
            kind=artifact["kind"],
            object_id=artifact["id"],
            run_id=artifact["run_id"],
            run_attempt=artifact["run_attempt"],
            job_id=artifact["job_id"],
            name=artifact["name"],
            head_sha=artifact["head_sha"],
            trusted=artifact["trusted"],
            private=private,
            size=0,
            sha256="",
        ),
        path=f"actions/artifacts/{artifact['id']}/zip",
        size=artifact["size_in_bytes"],
        digest=artifact["digest"],
        blob=f"{prefix}/{run}/{artifact['id']}",
    )
