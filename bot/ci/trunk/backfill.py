"""Filling the grid with what was before the App was installed: commits, their runs and jobs, read from GitHub.

What was read is stored as if it had been delivered. Commits whose runs are known are not asked about again, so an
interrupted run can be repeated.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from bot.ci.collect import budget
from bot.ci.trunk import list_branch
from bot.ci.trunk.store import listed_commits, rows
from bot.core.errors import OverBudget
from bot.ingest import delivery, inbox
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from bot.ci.trunk.tables import ListedCommit
    from bot.context import Context
    from bot.github.client import Client

T = TypeVar("T")

PAGE, MOST_PAGES = 100, 10  # of one commit's runs, and of one run's jobs
WAIT = 60.0  # seconds, where the budget does not say


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far filling is."""

    commits: int
    of: int
    runs: int
    jobs: int
    waits: float = 0.0  # seconds until the budget allows the next call


async def fill_branch(context: Context, repo: str, branch: str, commits: int) -> AsyncIterator[Progress]:
    """Read the newest commits of a branch and what ran on them; raises GitHubRefused."""
    repository, branch = await _repository(context, repo, branch)
    found = [one async for one in _commits(context, repo, branch, commits)]
    async with context.store.transaction() as tx:
        since = tx.now - context.settings.record_retention_days * DAY
        await listed_commits.store_commits(tx, repository["id"], branch, found, newest=False, since=since)
    unknown = await _unknown(context, repository["id"], found)
    runs = jobs = 0
    for at, sha in enumerate(unknown):
        while True:
            try:
                more = await _fill_commit(context, repo, repository, sha)
                break
            except OverBudget as error:
                yield Progress(commits=at, of=len(unknown), runs=runs, jobs=jobs, waits=error.after or WAIT)
                await context.clock.sleep(error.after or WAIT)
        runs, jobs = runs + more[0], jobs + more[1]
        yield Progress(commits=at + 1, of=len(unknown), runs=runs, jobs=jobs)


async def _repository(context: Context, repo: str, branch: str) -> tuple[dict[str, Any], str]:
    await _paid(context, repo)
    found = await context.app_for(repo).client(repo, metadata="read").repository()
    return found, branch or found["default_branch"]


async def _commits(context: Context, repo: str, branch: str, wanted: int) -> AsyncIterator[ListedCommit]:
    given = 0
    for page in range(1, wanted // list_branch.PAGE + 2):
        found = await _patient(
            context, functools.partial(list_branch.list_commits, context, repo, branch, page=page)
        )
        for one in found[: wanted - given]:
            yield one
        given += len(found)
        if len(found) < list_branch.PAGE or given >= wanted:
            return


async def _unknown(context: Context, repository_id: int, found: Sequence[ListedCommit]) -> list[str]:
    """Return the commits, newest first, of which no run is known."""
    shas = [one["sha"] for one in found]
    async with context.store.read() as tx:
        known = await rows.commits_with_runs(tx, repository_id, shas)
    return [sha for sha in shas if sha not in known]


async def _fill_commit(context: Context, repo: str, repository: dict[str, Any], sha: str) -> tuple[int, int]:
    client = context.app_for(repo).client(repo, actions="read")
    runs = await _pages(
        context, client, repo, "actions/runs{?head_sha,per_page,page}", "workflow_runs", head_sha=sha
    )
    jobs = []
    for run in runs:
        path = "actions/runs/{run}/jobs{?filter,per_page,page}"
        jobs += await _pages(context, client, repo, path, "jobs", run=str(run["id"]), filter="all")
    async with context.store.transaction() as tx:
        for job in jobs:
            await inbox.put(tx, delivery.delivery_of_answer("workflow_job", job, repository))
        for run in runs:  # last: a commit with a run is taken to be read
            await inbox.put(tx, delivery.delivery_of_answer("workflow_run", run, repository))
    return len(runs), len(jobs)


async def _pages(
    context: Context, client: Client, repo: str, path: str, name: str, **wanted: str
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for page in range(1, MOST_PAGES + 1):
        await budget.spend_call(context, repo)
        answer = await client.getitem(client.path(path), {**wanted, "per_page": str(PAGE), "page": str(page)})
        listed = [one for one in answer.get(name) or [] if isinstance(one, dict)]
        found += listed
        if len(listed) < PAGE:
            break
    return found


async def _paid(context: Context, repo: str) -> None:
    await _patient(context, functools.partial(budget.spend_call, context, repo))


async def _patient(context: Context, do: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await do()
        except OverBudget as error:
            await context.clock.sleep(error.after or WAIT)
