"""branch: compares the newest commits of watched branches with GitHub's list, for lost pushes. Key: nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from bot.ci.collect import budget, collection_scope
from bot.ci.trunk import required_checks
from bot.ci.trunk.store import branches, listed_commits, pushed_commits, rows
from bot.core.errors import GitHubRefused
from bot.core.json_fields import Kind, read_member
from bot.ingest import watched
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from bot.ci.trunk.tables import ListedCommit
    from bot.context import Context
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.ci.trunk.list_branch")

PAGE = 100  # commits of one call


async def list_branches(context: Context, _task: Task) -> None:
    """List the watched branches of every upstream."""
    for repo in context.settings.upstream_repo:
        async with context.store.read() as tx:
            if await collection_scope.run_refusal(tx, context.settings, repo, workflow=None):
                continue
            repository = await rows.repository(tx, await watched.ids(tx, repo))
            names = await branches.watched_names(tx, context.settings, repository) if repository else []
        for branch in names:
            assert repository is not None
            try:
                found = await list_commits(context, repo, branch, page=1)
            except (
                GitHubRefused
            ) as error:  # deleted meanwhile, or not granted: the others can still be listed
                log.warning("a branch cannot be listed", repo=repo, branch=branch, reason=str(error))
                continue
            async with context.store.transaction() as tx:
                since = tx.now - context.settings.record_retention_days * DAY
                await listed_commits.store_commits(
                    tx, repository["repository_id"], branch, found, newest=True, since=since
                )
                await listed_commits.name_pulls(tx, repository["repository_id"], branch)
            await required_checks.ask_for_checks(context, repo, repository["repository_id"], branch)


async def list_commits(context: Context, repo: str, branch: str, *, page: int) -> list[ListedCommit]:
    """Return one page of a branch's commits, newest first; raises GitHubRefused and OverBudget."""
    await budget.spend_call(context, repo)
    client = context.app_for(repo).client(repo, contents="read")
    url = client.path("commits{?sha,per_page,page}")
    found = await client.getitem(url, {"sha": branch, "per_page": str(PAGE), "page": str(page)})
    return [made for one in found if isinstance(one, dict) and (made := _commit(one))]


def _commit(one: dict[str, Any]) -> ListedCommit | None:
    sha, at = (
        read_member(one, ("sha",), Kind.TEXT),
        read_member(one, ("commit", "committer", "date"), Kind.TIME),
    )
    if sha is None or at is None:
        return None
    author = read_member(one, ("author", "login"), Kind.TEXT) or read_member(
        one, ("commit", "author", "name"), Kind.TEXT
    )
    title = pushed_commits.shorten_title(read_member(one, ("commit", "message"), Kind.TEXT) or "")
    return {"sha": sha, "at": at, "title": title, "author": author}
