"""Task pull_closes: reads the messages of a pull request's commits for the issues that they close."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import structlog

from bot.ci.collect import budget
from bot.ci.disabled import closing, pull_rows
from bot.core.errors import GitHubRefused, GiveUp

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Changed, Transaction
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.ci.disabled.pull_commits")

PAGE, MOST_PAGES = 100, 3  # GitHub lists no more than 250 commits of a pull request


def request_pull(tx: Transaction, repository_id: int, number: int) -> None:
    """Have the commits of a pull request read."""
    tx.enqueue("pull_closes", f"{repository_id}/{number}")


async def request_changed_pulls(tx: Transaction, changed: Changed) -> None:
    """Have the commits of pull requests with a new head read, where something is disabled."""
    pulls: defaultdict[int, set[int]] = defaultdict(set)
    for row in changed.get("pull_request", ()):
        if row["state"] == "open" and row["number"] is not None:
            pulls[row["repository_id"]].add(row["number"])
    for repository_id, numbers in sorted(pulls.items()):
        for number in await pull_rows.unread_pulls(tx, repository_id, numbers):
            request_pull(tx, repository_id, number)


async def read_pull_commits(context: Context, task: Task) -> None:
    """Read the commits of one pull request (key: repository's id/number)."""
    identifier, _, number = task.key.partition("/")
    if not (identifier.isdigit() and number.isdigit()):
        raise GiveUp(f"{task.key!r} is no pull request")
    async with context.store.read() as tx:
        pull = await pull_rows.find_pull(tx, int(identifier), int(number))
    if pull is None or pull["head_sha"] is None:
        return
    found: set[pull_rows.Issue] = set()
    try:
        for message in await _messages(context, pull["repo"], int(number), since=task.created_at):
            found |= closing.closed_issues(message, pull["repo"])
    except GitHubRefused as error:  # its description still counts
        log.info("commits cannot be read", repo=pull["repo"], pull=int(number), reason=str(error))
    async with context.store.transaction() as tx:
        await pull_rows.store_closed(tx, int(identifier), int(number), pull["head_sha"], found)


async def _messages(context: Context, repo: str, number: int, *, since: int) -> list[str]:
    client = context.app_for(repo).client(repo, since=since, pull_requests="read")
    found: list[str] = []
    for page in range(1, MOST_PAGES + 1):
        await budget.spend_call(context, repo)
        url = client.path("pulls/{number}/commits{?per_page,page}")
        wanted = {"number": str(number), "per_page": str(PAGE), "page": str(page)}
        listed = await client.getitem(url, wanted)
        found += [str(one["commit"]["message"]) for one in listed]
        if len(listed) < PAGE:
            break
    return found
