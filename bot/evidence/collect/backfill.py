"""Collecting what is past, by hand, and what was lost on the way, by the task `ci_sweep`.

Runs and jobs are read from GitHub and stored as if their deliveries had come.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypedDict

from bot.evidence.collect import fetches
from bot.evidence.collect.parser_pool import WORKSPACE
from bot.ingest import deliveries, inbox
from bot.jobs import collection, runs
from bot.jobs.collection import FetchState
from bot.jobs.job_names import FAILED
from bot.jobs.settings import CollectSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.github.client import Client
    from bot.queue.tasks import Task

TASK_OF_KIND = {"artifact": "collect", "log": "log"}  # kind of fetch -> kind of task
PAGE, MOST_PAGES = 100, 10  # GitHub lists no more than a thousand runs of a search
JOBS_WAIT = 15.0  # seconds until what was stored is in the records


@dataclass(frozen=True, kw_only=True)
class CollectedRun:
    """A run to be collected again."""

    run_id: int
    attempts: int
    jobs: int
    failed: int


class Progress(TypedDict):
    """How far collecting from one repository is."""

    repo: str
    states: dict[str, int]
    oldest_wanted_at: int | None
    calls_last_hour: int
    bytes_last_hour: int


async def request_overdue(context: Context, _task: Task) -> None:
    """Requeue what is overdue, and delete what killed processes left behind."""
    await context.resource(WORKSPACE).delete_left_folders()
    if not context.settings.of(CollectSettings).ci:
        return
    async with context.store.read() as tx:
        unlisted = await fetches.overdue_listings(tx)
        unfetched = await fetches.overdue_fetches(tx)
    async with context.store.transaction() as tx:
        for run in unlisted:
            tx.enqueue("artifacts", fetches.run_key(*run))
        for repo, kind, object_id in unfetched:
            tx.enqueue(TASK_OF_KIND[kind], fetches.object_key(repo, object_id))


async def collect_run(context: Context, repo: str, run_id: int) -> CollectedRun:
    """Collect everything of a run; raises GitHubRefused where it cannot be read."""
    client = context.app_for(repo).client(repo, actions="read")
    await collection.spend_call(context, repo)
    newest = await client.getitem(client.path("actions/runs/{run}"), {"run": str(run_id)})
    return await _collect(context, client, repo, newest)


async def collect_since(context: Context, repo: str, since: int) -> AsyncIterator[CollectedRun]:
    """Collect the finished runs created since a time, newest first."""
    client = context.app_for(repo).client(repo, actions="read")
    created = f">={datetime.fromtimestamp(since / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    for page in range(1, MOST_PAGES + 1):
        await collection.spend_call(context, repo)
        url = client.path("actions/runs{?status,created,per_page,page}")
        wanted = {"status": "completed", "created": created, "per_page": str(PAGE), "page": str(page)}
        attempts = (await client.getitem(url, wanted))["workflow_runs"]
        for attempt in attempts:
            yield await _collect(context, client, repo, attempt)
        if len(attempts) < PAGE:
            return


async def collecting_progress(tx: Transaction, repos: Collection[str] = ()) -> list[Progress]:
    """Return how far collecting has come, by repository."""
    names = await runs.repository_names(tx)
    spent = await collection.last_hour(tx)
    by_repository: dict[int, Progress] = {}
    for repository_id, state, count, oldest in await fetches.count_states(tx):
        repo = names.get(repository_id) or str(repository_id)
        calls, size = spent.get(repo.partition("/")[0].casefold(), (0, 0))
        blank = Progress(
            repo=repo, states={}, oldest_wanted_at=None, calls_last_hour=calls, bytes_last_hour=size
        )
        progress = by_repository.setdefault(repository_id, blank)
        progress["states"][state] = count
        if state == FetchState.WANTED:
            progress["oldest_wanted_at"] = oldest
    wanted = {repo.casefold() for repo in repos}
    return [
        progress for progress in by_repository.values() if not wanted or progress["repo"].casefold() in wanted
    ]


async def _collect(context: Context, client: Client, repo: str, newest: dict[str, Any]) -> CollectedRun:
    runs = [newest]
    for attempt in range(1, newest["run_attempt"]):
        await collection.spend_call(context, repo)
        names = {"run": str(newest["id"]), "attempt": str(attempt)}
        runs.append(await client.getitem(client.path("actions/runs/{run}/attempts/{attempt}"), names))
    jobs = await _jobs(context, client, repo, newest["id"])
    failed = [job for job in jobs if job["conclusion"] in FAILED]
    async with context.store.transaction() as tx:
        for run in runs:
            await inbox.store_delivery(
                tx, deliveries.delivery_of_answer("workflow_run", run, newest["repository"])
            )
        for job in jobs:
            await inbox.store_delivery(
                tx, deliveries.delivery_of_answer("workflow_job", job, newest["repository"])
            )
        await _retry_empty(tx, newest["repository"]["id"], newest["id"])
        for run in runs:
            tx.enqueue("artifacts", fetches.run_key(repo, run["id"], run["run_attempt"]), delay=JOBS_WAIT)
        for job in failed:
            tx.enqueue("log", fetches.object_key(repo, job["id"]), delay=JOBS_WAIT)
    return CollectedRun(run_id=newest["id"], attempts=len(runs), jobs=len(jobs), failed=len(failed))


async def _jobs(context: Context, client: Client, repo: str, run_id: int) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = []
    for page in range(1, MOST_PAGES + 1):
        await collection.spend_call(context, repo)
        url = client.path("actions/runs/{run}/jobs{?filter,per_page,page}")
        wanted = {"run": str(run_id), "filter": "all", "per_page": str(PAGE), "page": str(page)}
        listed = (await client.getitem(url, wanted))["jobs"]
        jobs += listed
        if len(listed) < PAGE:
            break
    return [job for job in jobs if job["status"] == "completed"]


async def _retry_empty(tx: Transaction, repository_id: int, run_id: int) -> None:
    """Requeue a run's fetches that returned nothing."""
    for kind in ("log", "artifact"):
        known = await fetches.fetches_of_run(tx, repository_id, run_id, kind)
        bare = [
            key for key, row in known.items() if row["state"] not in {FetchState.STORED, FetchState.PARSED}
        ]
        await fetches.retry_fetches(tx, repository_id, kind, bare)
