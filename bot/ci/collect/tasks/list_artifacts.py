"""artifacts: lists what an attempt of a run left behind, and has it fetched. Key: `owner/repo/run_id/run_attempt`.

Artifacts are listed by run, never by name across the repository: forks share that namespace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.ci.collect import budget, collection_scope, keys
from bot.ci.collect.attribution import Job, attempt_of, attribute_artifact, partial_number
from bot.ci.collect.parse import artifact_kinds
from bot.ci.collect.settings import CollectSettings
from bot.ci.collect.states import State
from bot.ci.collect.store import artifacts, fetches, runs
from bot.ci.collect.store.trusted_runs import is_trusted_run
from bot.ci.collect.tasks import fetch_file
from bot.core.errors import GitHubRefused, NotInstalled
from bot.core.json_fields import Kind, read_member
from bot.core.masking import mask
from bot.ingest import delivery, inbox

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.ci.collect.tables import ArtifactRow
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.github.client import Client
    from bot.ingest.rows import WorkflowJobRow, WorkflowRunRow
    from bot.queue.tasks import Task

PAGE, MOST_PAGES = 100, 100
BATCH = 200  # rows of one transaction
PAUSE = 0.02  # seconds between two of them
AGAIN = (60.0, 600.0)  # seconds until the second and third pass: uploads may show late
DIGEST_LENGTH = 100
WHILE_RUNNING = frozenset({"junit", "runreport"})  # kinds that are read while their job runs


@dataclass(frozen=True, kw_only=True)
class _Run:
    """An attempt of a run, and what is known around it."""

    row: WorkflowRunRow
    started: Mapping[int, int | None]  # its attempts
    jobs: Sequence[Job]
    trusted: bool


async def list_artifacts(context: Context, task: Task) -> None:
    """List the artifacts of a run; a second and third time where there may be more."""
    repo, run_id, attempt = keys.parse_run_key(task.key)
    async with context.store.read() as tx:
        row = await runs.find_attempt(tx, run_id, attempt)
        if row is None or row["repo"].lower() != repo.lower():
            return
        refused = await collection_scope.run_refusal(
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
        found = await read_pages(
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
    await _store(context, of_run, found)
    await _logs(context, known, attempt)
    grew = before is not None and len(found) > before["artifacts"]
    late = not found and any("test" in (job["name"] or "").lower() for job in known)

    async def record_pass(tx: Transaction) -> None:
        passes = await fetches.record_listing(tx, row, "listed", artifacts=len(found))
        if (grew or late) and passes <= len(AGAIN):
            tx.enqueue("artifacts", task.key, delay=AGAIN[passes - 1])

    await context.store.write(record_pass)


async def read_pages(
    context: Context, client: Client, repo: str, path: str, name: str, *, most: int = MOST_PAGES
) -> list[dict[str, Any]]:
    """Return all pages of a list, at most so many; each counts as a call of the budget."""
    found: list[dict[str, Any]] = []
    for page in range(1, most + 1):
        await budget.spend_call(context, repo)
        url = client.path(path + "{?per_page,page}")
        answer = await client.getitem(url, {"per_page": str(PAGE), "page": str(page)})
        listed = [item for item in answer.get(name) or [] if isinstance(item, dict)]
        found += listed
        if len(listed) < PAGE:
            break
    return found


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
    """Store jobs whose deliveries were lost, as if these had arrived."""
    ended = {job["id"] for job in known if job["status"] == "completed"}
    missed = [job for job in listed if job.get("status") == "completed" and job.get("id") not in ended]
    if not missed:
        return
    repository = {"id": row["repository_id"], "full_name": row["repo"]}
    async with context.store.transaction() as tx:
        for job in missed:
            await inbox.put(tx, delivery.delivery_of_answer("workflow_job", job, repository))


async def store_running(context: Context, row: WorkflowRunRow, found: Sequence[dict[str, Any]]) -> None:
    """Store the artifacts that a run has left by now, which is not over, and have them fetched."""
    of_run, _ = await _described(context, row)
    await _store(context, of_run, found)


async def _described(context: Context, row: WorkflowRunRow) -> tuple[_Run, list[WorkflowJobRow]]:
    """Return what is known around a run, and its jobs."""
    async with context.store.read() as tx:
        known = await runs.jobs_of_run(tx, row["repository_id"], row["id"])
        trusted = await is_trusted_run(tx, context.settings, row)
        started = await runs.attempt_starts(tx, row["repository_id"], row["id"])
    jobs = [Job(job["id"], job["name"] or "", job["run_attempt"] or 1) for job in known]
    return _Run(row=row, started=started, jobs=jobs, trusted=trusted), known


async def _store(context: Context, of_run: _Run, found: Sequence[dict[str, Any]]) -> None:
    """Store the artifacts and have those of a known kind fetched, a batch at a time."""
    kinds = context.settings.of(CollectSettings).ci_artifacts
    made = [artifact for one in found if (artifact := _artifact(of_run, one, kinds))]
    for start in range(0, len(made), BATCH):
        batch = made[start : start + BATCH]
        async with context.store.transaction() as tx:
            await artifacts.record_artifacts(tx, batch, workflow=of_run.row["name"] or "")
            await _want(tx, context, of_run.row["repo"], batch)
        await context.clock.sleep(PAUSE)


async def _want(tx: Transaction, context: Context, repo: str, batch: Sequence[ArtifactRow]) -> None:
    """Have artifacts of a kind that a feature reads fetched; another head's is refused."""
    for artifact in batch:
        if fetch_file.reader_of(context, artifact["kind"]) is None or _is_passing(artifact):
            continue
        key = ("repository_id", "run_id", "run_attempt", "job_id")
        intent = {name: artifact[name] for name in key} | {"kind": "artifact", "object_id": artifact["id"]}  # type: ignore[literal-required]
        await fetches.want_fetches(tx, [intent])
        row = await fetches.find_fetch(tx, artifact["repository_id"], "artifact", artifact["id"])
        if row is None or row["state"] != State.WANTED:
            continue
        if "foreign_head" in artifact["flags"]:
            await fetches.settle_fetch(
                tx, row, State.REFUSED, error="it is of another repository than its run"
            )
        else:
            tx.enqueue("collect", keys.object_key(repo, artifact["id"]))


def _is_passing(artifact: ArtifactRow) -> bool:
    """Whether an artifact says how far a job is, and is of a kind that is read once the job is over."""
    return partial_number(artifact["name"]) is not None and artifact["kind"] not in WHILE_RUNNING


def _artifact(of_run: _Run, found: dict[str, Any], kinds: artifact_kinds.Kinds) -> ArtifactRow | None:
    """Return an artifact as it is stored; identity comes from our record of the run, never from the artifact."""
    row = of_run.row
    identifier, name = read_member(found, ("id",), Kind.INT), read_member(found, ("name",), Kind.TEXT)
    if identifier is None or name is None:
        return None
    created_at = read_member(found, ("created_at",), Kind.TIME)
    attempt = attempt_of(created_at, of_run.started)
    attribution = attribute_artifact(name, of_run.jobs, attempt=attempt, run_id=row["id"])
    head = read_member(found, ("workflow_run", "head_repository_id"), Kind.INT)
    foreign = row["head_repository_id"] is not None and head not in {None, row["head_repository_id"]}
    digest = read_member(found, ("digest",), Kind.TEXT)
    return {
        "repository_id": row["repository_id"],
        "id": identifier,
        "run_id": row["id"],
        "run_attempt": attempt,
        "job_id": attribution.job_id,
        "name": mask(name),
        "kind": artifact_kinds.kind_of(name, kinds),
        "size_in_bytes": max(read_member(found, ("size_in_bytes",), Kind.INT) or 0, 0),
        "digest": digest and digest[:DIGEST_LENGTH],
        "created_at": created_at,
        "updated_at": read_member(found, ("updated_at",), Kind.TIME),
        "expires_at": read_member(found, ("expires_at",), Kind.TIME),
        "expired": bool(read_member(found, ("expired",), Kind.BOOL)),
        "head_sha": row["head_sha"] or "",
        "trusted": of_run.trusted and not foreign,
        "flags": [*attribution.flags, *(["foreign_head"] if foreign else [])],
    }


async def _logs(context: Context, known: Sequence[WorkflowJobRow], attempt: int) -> None:
    """With CI_LOGS=all, have the logs of the jobs that passed fetched; those that failed have been asked for."""
    if context.settings.of(CollectSettings).ci_logs != "all":
        return
    ended = [job for job in known if job["run_attempt"] == attempt and job["status"] == "completed"]
    async with context.store.transaction() as tx:
        for job in ended:
            if not collection_scope.never_started(job):
                tx.enqueue("log", keys.object_key(job["repo"], job["id"]))
