"""Comparing the newest commits of watched branches with GitHub's list, and filling the grid with what was before.

Task `branch`, without a key: pushes whose deliveries were lost are found.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from bot.core.errors import GitHubRefused, OverBudget
from bot.core.json_fields import Kind, read_member
from bot.ingest import deliveries, inbox, repositories
from bot.jobs import branch_commits, branches, collection, rows
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from bot.context import Context
    from bot.github.client import Client
    from bot.jobs.tables import ListedCommit
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.jobs.branch_lists")

PAGE = 100  # commits of one call
Answer = TypeVar("Answer")

RUNS_PAGE, MOST_RUN_PAGES = 100, 10  # of one commit's runs, and of one run's jobs
BUDGET_WAIT = 60.0  # seconds, where the budget does not say


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far filling the grid has come."""

    commits: int
    of: int
    runs: int
    jobs: int
    waits: float = 0.0  # seconds until the budget allows the next call


async def list_branches(context: Context, _task: Task) -> None:
    """List the watched branches of every upstream."""
    for repo in context.settings.upstream_repo:
        async with context.store.read() as tx:
            if await collection.run_refusal(tx, context.settings, repo, workflow=None):
                continue
            repository = await rows.repository(tx, await repositories.read_ids(tx, repo))
            names = (
                await branches.watched_branch_names(tx, context.settings, repository) if repository else []
            )
        for branch in names:
            assert repository is not None
            try:
                commits = await list_commits(context, repo, branch, page=1)
            except (
                GitHubRefused
            ) as error:  # deleted meanwhile, or not granted: the others can still be listed
                log.warning("a branch cannot be listed", repo=repo, branch=branch, reason=str(error))
                continue
            async with context.store.transaction() as tx:
                since = tx.now - context.settings.record_retention_days * DAY
                await branch_commits.store_commits(
                    tx, repository["repository_id"], branch, commits, newest=True, since=since
                )
                await branch_commits.name_pulls(tx, repository["repository_id"], branch)
            await branches.ask_for_checks(context, repo, repository["repository_id"], branch)


async def list_commits(context: Context, repo: str, branch: str, *, page: int) -> list[ListedCommit]:
    """Return one page of a branch's commits, newest first; raises GitHubRefused and OverBudget."""
    await collection.spend_call(context, repo)
    client = context.app_for(repo).client(repo, contents="read")
    url = client.path("commits{?sha,per_page,page}")
    listed = await client.getitem(url, {"sha": branch, "per_page": str(PAGE), "page": str(page)})
    return [made for commit in listed if isinstance(commit, dict) and (made := _listed_commit(commit))]


async def fill_branch(context: Context, repo: str, branch: str, commits: int) -> AsyncIterator[Progress]:
    """Read the newest commits of a branch and what ran on them; raises GitHubRefused."""
    repository, branch = await _repository(context, repo, branch)
    listed = [commit async for commit in _commits(context, repo, branch, commits)]
    async with context.store.transaction() as tx:
        since = tx.now - context.settings.record_retention_days * DAY
        await branch_commits.store_commits(tx, repository["id"], branch, listed, newest=False, since=since)
    unknown = await _unknown(context, repository["id"], listed)
    runs = jobs = 0
    for at, sha in enumerate(unknown):
        while True:
            try:
                more = await _fill_commit(context, repo, repository, sha)
                break
            except OverBudget as error:
                yield Progress(
                    commits=at, of=len(unknown), runs=runs, jobs=jobs, waits=error.after or BUDGET_WAIT
                )
                await context.clock.sleep(error.after or BUDGET_WAIT)
        runs, jobs = runs + more[0], jobs + more[1]
        yield Progress(commits=at + 1, of=len(unknown), runs=runs, jobs=jobs)


def _listed_commit(commit: dict[str, Any]) -> ListedCommit | None:
    sha, at = (
        read_member(commit, ("sha",), Kind.TEXT),
        read_member(commit, ("commit", "committer", "date"), Kind.TIME),
    )
    if sha is None or at is None:
        return None
    author = read_member(commit, ("author", "login"), Kind.TEXT) or read_member(
        commit, ("commit", "author", "name"), Kind.TEXT
    )
    title = branch_commits.shorten_title(read_member(commit, ("commit", "message"), Kind.TEXT) or "")
    return {"sha": sha, "at": at, "title": title, "author": author}


async def _repository(context: Context, repo: str, branch: str) -> tuple[dict[str, Any], str]:
    await _paid(context, repo)
    repository = await context.app_for(repo).client(repo, metadata="read").repository()
    return repository, branch or repository["default_branch"]


async def _commits(context: Context, repo: str, branch: str, wanted: int) -> AsyncIterator[ListedCommit]:
    given = 0
    for page in range(1, wanted // PAGE + 2):
        listed = await _patient(context, functools.partial(list_commits, context, repo, branch, page=page))
        for commit in listed[: wanted - given]:
            yield commit
        given += len(listed)
        if len(listed) < PAGE or given >= wanted:
            return


async def _unknown(context: Context, repository_id: int, commits: Sequence[ListedCommit]) -> list[str]:
    """Return the commits without a known run, newest first."""
    shas = [commit["sha"] for commit in commits]
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
            await inbox.store_delivery(tx, deliveries.delivery_of_answer("workflow_job", job, repository))
        for run in runs:  # last: a commit with a run is taken to be read
            await inbox.store_delivery(tx, deliveries.delivery_of_answer("workflow_run", run, repository))
    return len(runs), len(jobs)


async def _pages(
    context: Context, client: Client, repo: str, path: str, name: str, **wanted: str
) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for page in range(1, MOST_RUN_PAGES + 1):
        await collection.spend_call(context, repo)
        answer = await client.getitem(
            client.path(path), {**wanted, "per_page": str(RUNS_PAGE), "page": str(page)}
        )
        listed = [entry for entry in answer.get(name) or [] if isinstance(entry, dict)]
        entries += listed
        if len(listed) < RUNS_PAGE:
            break
    return entries


async def _paid(context: Context, repo: str) -> None:
    await _patient(context, functools.partial(collection.spend_call, context, repo))


async def _patient(context: Context, do: Callable[[], Awaitable[Answer]]) -> Answer:
    while True:
        try:
            return await do()
        except OverBudget as error:
            await context.clock.sleep(error.after or BUDGET_WAIT)
