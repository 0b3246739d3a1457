"""Task `log`: fetches the log of a finished job. Key: `owner/repo#job_id`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.core.errors import GitHubRefused, RetryLater
from bot.evidence.collect import fetch_file, fetches
from bot.evidence.collect.fetch_file import NotThere, Wanted
from bot.evidence.collect.parser_pool import WORKSPACE
from bot.evidence.collect.receivers import Fetched
from bot.jobs import collection, runs
from bot.jobs.collection import FetchState
from bot.jobs.job_names import FAILED
from bot.jobs.runs import is_trusted_run

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.evidence.collect.tables import FetchRow
    from bot.ingest.record_rows import WorkflowJobRow
    from bot.queue.tasks import Task

NEVER_STARTED = "GitHub kept no log: the job never started"
WAITS = (10.0, 60.0, 600.0, 3600.0)  # seconds between tries: GitHub may have a log only hours after its job


async def fetch_log(context: Context, task: Task) -> None:
    """Fetch a job's log, unless the settings leave it out."""
    repo, job_id = fetches.parse_object_key(task.key)
    context.resource(WORKSPACE).shares.check(repo.casefold())
    async with context.store.transaction() as tx:
        job = await runs.find_named_job(tx, repo, job_id)
        if job is None or job["status"] != "completed":
            return
        if await collection.run_refusal(tx, context.settings, job["repo"], workflow=job["workflow_name"]):
            return
        if refused := collection.log_refusal(context.settings, job["conclusion"]):
            if job["conclusion"] in FAILED:
                await fetches.want_fetches(tx, [_intent(job)])
                await _skip(tx, job, refused)
            return
        await fetches.want_fetches(tx, [_intent(job)])
        row = await fetches.begin_try(tx, job["repository_id"], "log", job_id)
        if row is None:
            return
        wanted = await _wanted(tx, context, job)
    if collection.never_started(job):
        await fetch_file.end_fetch(context, row, FetchState.ABSENT, NEVER_STARTED)
        return
    try:
        await fetch_file.fetch_file(context, row, wanted)
    except NotThere as error:
        await _not_there(context, row, job, wanted.fetched, error.status)


async def _not_there(
    context: Context, row: FetchRow, job: WorkflowJobRow, fetched: Fetched, status: int
) -> None:
    """Find out whether a log that GitHub does not have will come later, or never."""
    if status == 410:
        await fetch_file.end_fetch(context, row, FetchState.EXPIRED, "GitHub has deleted it")
        return
    if status != 404:
        await fetch_file.end_fetch(context, row, FetchState.BROKEN, f"GitHub answered {status}")
        return
    state = await _read_job(context, job)
    if state is None:
        await fetch_file.end_fetch(context, row, FetchState.ABSENT, "GitHub no longer knows the job")
    elif state.get("conclusion") == "skipped" or not (state.get("runner_name") or state.get("steps")):
        await fetch_file.end_fetch(context, row, FetchState.ABSENT, NEVER_STARTED)
    elif row["tries"] > len(WAITS):
        reader = fetch_file.reader_of(context, fetched.kind)
        if reader and reader.receiver.absent:
            await reader.receiver.absent(context, fetched)
        await fetch_file.end_fetch(context, row, FetchState.ABSENT, "GitHub had none")
    else:
        await fetch_file.wait_for_next_try(context, row, "GitHub has no log yet", WAITS[row["tries"] - 1])


async def _read_job(context: Context, job: WorkflowJobRow) -> dict[str, Any] | None:
    """Return the job as GitHub has it, None where it has none."""
    client = context.app_for(job["repo"]).client(job["repo"], since=job["received_at"], actions="read")
    await collection.spend_call(context, job["repo"])
    try:
        answer: dict[str, Any] = await client.getitem(
            client.path("actions/jobs/{job}"), {"job": str(job["id"])}
        )
    except GitHubRefused as error:
        if error.gone:
            return None
        raise RetryLater(f"job {job['id']} cannot be read: {error}", after=60) from error
    return answer


async def _skip(tx: Transaction, job: WorkflowJobRow, reason: str) -> None:
    row = await fetches.find_fetch(tx, job["repository_id"], "log", job["id"])
    if row is not None and row["state"] == FetchState.WANTED:
        await fetches.settle_fetch(tx, row, FetchState.SKIPPED, error=reason)


def _intent(job: WorkflowJobRow) -> dict[str, Any]:
    return {
        "repository_id": job["repository_id"],
        "kind": "log",
        "object_id": job["id"],
        "run_id": job["run_id"] or 0,
        "run_attempt": job["run_attempt"] or 1,
        "job_id": job["id"],
    }


async def _wanted(tx: Transaction, context: Context, job: WorkflowJobRow) -> Wanted:
    facts = await runs.repository_facts(tx, job["repository_id"])
    run_row = await runs.find_attempt(tx, job["run_id"] or 0, job["run_attempt"] or 1)
    return Wanted(
        fetched=Fetched(
            repository_id=job["repository_id"],
            repo=job["repo"],
            source="log",
            kind="log",
            object_id=job["id"],
            run_id=job["run_id"] or 0,
            run_attempt=job["run_attempt"] or 1,
            job_id=job["id"],
            name=job["name"] or "",
            head_sha=job["head_sha"] or "",
            trusted=run_row is not None and await is_trusted_run(tx, context.settings, run_row),
            private=facts.private is not False,
            size=0,
            sha256="",
        ),
        path=f"actions/jobs/{job['id']}/logs",
        size=None,
        digest=None,
        blob=f"log/{job['repository_id']}/{job['id']}",
    )
