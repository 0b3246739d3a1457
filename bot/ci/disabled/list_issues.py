"""Task disabled_issues: finds by searching the issues about CI that no delivery brought, and those closed meanwhile.

So issues older than the bot's installation count, too. What differs from our records is stored as a delivery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from bot.ci.collect import budget
from bot.ci.disabled import issue_text, rows
from bot.core.errors import GitHubRefused, GiveUp
from bot.core.json_fields import as_int, as_time
from bot.ingest import delivery, inbox

if TYPE_CHECKING:
    from bot.context import Context
    from bot.github.client import Client
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.ci.disabled.list_issues")

PAGE, MOST_PAGES = 100, 10  # GitHub shows no more than a thousand results of a search
LOOKUPS_MOST = 50  # of issues that the search no longer finds
Found = dict[int, dict[str, Any]]  # issues by number


async def find_missed_issues(context: Context, task: Task) -> None:
    """Compare the records of one repository's issues about CI (key: its id) with what GitHub finds."""
    if not task.key.isdigit():
        raise GiveUp(f"{task.key!r} is not the id of a repository")
    identifier = int(task.key)
    async with context.store.read() as tx:
        repo = (await rows.repositories(tx, context.settings)).get(identifier)
        known = {row["number"]: row["updated_at"] or 0 for row in await rows.candidates(tx, identifier)}
    if repo is None:
        return
    client = context.app_for(repo).client(repo, issues="read")
    try:
        found, complete = await _search(context, client, repo)
        if complete:
            found |= await _look_up(context, client, repo, sorted(known.keys() - found.keys()))
    except GitHubRefused as error:
        log.info("issues cannot be searched", repo=repo, reason=str(error))
        return
    behind = [
        one for number, one in found.items() if (as_time(one["updated_at"]) or 0) > known.get(number, -1)
    ]
    for issue in behind:
        async with context.store.transaction() as tx:
            await inbox.put(tx, _as_delivery({"id": identifier, "full_name": repo}, issue))
    if behind:
        log.info("issues found", repo=repo, issues=len(behind))


async def _search(context: Context, client: Client, repo: str) -> tuple[Found, bool]:
    """Return the open issues whose titles have one of our words in them, and whether these are all."""
    found: Found = {}
    complete = True
    for word in (issue_text.DISABLED, issue_text.UNSTABLE):
        for page in range(1, MOST_PAGES + 1):
            await budget.spend_call(context, repo)
            answer = await client.getitem(
                "/search/issues{?q,sort,order,per_page,page}",
                {
                    "q": f"repo:{repo} is:issue is:open in:title {word}",
                    "sort": "created",
                    "order": "asc",
                    "per_page": str(PAGE),
                    "page": str(page),
                },
            )
            items = [one for one in answer["items"] if str(one["title"]).startswith(f"{word} ")]
            found |= {one["number"]: one for one in items}
            if len(answer["items"]) < PAGE:
                break
        complete &= not answer["incomplete_results"] and answer["total_count"] <= PAGE * MOST_PAGES
    return found, complete


async def _look_up(context: Context, client: Client, repo: str, numbers: list[int]) -> Found:
    """Return some issues as they are now."""
    found: Found = {}
    for number in numbers[:LOOKUPS_MOST]:
        await budget.spend_call(context, repo)
        try:
            found[number] = await client.getitem(client.path("issues/{number}"), {"number": str(number)})
        except GitHubRefused as error:
            if not error.gone:
                raise
    return found


def _as_delivery(repository: dict[str, Any], issue: dict[str, Any]) -> inbox.Incoming:
    body = {"action": "reconciled", "issue": issue, "repository": repository}
    content = f"issues {repository['id']} {as_int(issue['id'])} {issue['updated_at']}"
    return delivery.as_incoming(delivery.guid(content), "issues", body, source="api")
