"""Tasks disabled and disabled_issues: make the lists from issues, and find the issues that no delivery brought."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from bot.core.errors import GitHubRefused, GiveUp
from bot.core.json_fields import as_int, as_time
from bot.evidence.disabled import answers, exports, issue_text, lists, pull_closes, rows
from bot.evidence.disabled.feature import DisabledSettings
from bot.ingest import deliveries, inbox
from bot.jobs import collection, grid_columns
from bot.oot.dispatch.redispatch import TRUSTED_ASSOCIATIONS, may_write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Changed, Transaction
    from bot.evidence.disabled.tables import CandidateRow, DisablingRow
    from bot.github.client import Client
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.evidence.disabled.make_lists")

EVERY = 1800.0  # seconds: people lose their rights, and devices are listed, without an issue being touched
TOGETHER = 2.0  # seconds: many issues may change at once
PREFIXES = (f"{issue_text.DISABLED} ", f"{issue_text.UNSTABLE} ")
AUTHORS_MOST = 200  # that GitHub is asked about each time
PAGE, MOST_PAGES = 100, 10  # GitHub shows no more than a thousand results of a search
LOOKUPS_MOST = 50  # of issues that the search no longer finds
IssuesByNumber = dict[int, dict[str, Any]]  # issues by number


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"disabled_check": EVERY}


async def request_changed_lists(tx: Transaction, changed: Changed) -> None:
    """Before a commit: request the lists of repositories whose issues changed, and the commits that may close some."""
    issues = changed.get("issue", ())
    concerned = {row["repository_id"] for row in issues if (row["title"] or "").startswith(PREFIXES)}
    others = {
        (row["repository_id"], row["number"]) for row in issues if row["repository_id"] not in concerned
    }
    keys = {(repository, number) for repository, number in others if number is not None}
    if keys:
        concerned |= {repository for repository, _ in await rows.known_numbers(tx, keys)}
    for identifier in sorted(concerned):
        tx.enqueue("disabled", str(identifier), delay=TOGETHER)
    await pull_closes.request_changed_pulls(tx, changed)


async def request_all_lists(context: Context, _task: Task) -> None:
    """Request missed issues and pull requests, and the lists of every repository."""
    async with context.store.transaction() as tx:
        for identifier in sorted(await rows.listing_repositories(tx, context.settings)):
            tx.enqueue("disabled", str(identifier))
            tx.enqueue("disabled_issues", str(identifier))
            for number in await pull_closes.unread_pulls(tx, identifier):
                pull_closes.request_pull(tx, identifier, number)


async def make_lists(context: Context, task: Task) -> None:
    """Make the lists of a repository. Key: its id."""
    if not task.key.isdigit():
        raise GiveUp(f"{task.key!r} is not the id of a repository")
    identifier = int(task.key)
    async with context.store.read() as tx:
        repo = (await rows.listing_repositories(tx, context.settings)).get(identifier)
        issues = await rows.candidate_issues(tx, identifier)
        devices = await rows.devices(tx)
    if repo is None:
        return
    refusals = await _refusals(context, repo, issues)
    read = [_understood(identifier, issue, devices, refusals.get(issue["author"] or "")) for issue in issues]
    pages = {name: lists.seal_list(make(read)) for name, make in lists.LISTS.items()}
    async with context.store.transaction() as tx:
        await rows.replace_issues(tx, identifier, read)
        changed = [name for name, page in pages.items() if await lists.store_list(tx, identifier, name, page)]
        await exports.note_day(tx, identifier, lists.disabled_tests(read))
        await grid_columns.replace_unstable_names(tx, identifier, lists.unstable_jobs(read))
        await answers.request_answers(context, tx, repo, identifier, read)
    if changed:
        effective = sum(issue["listed"] for issue in read)
        log.info("lists made", repo=repo, lists=changed, issues=len(read), effective=effective)


async def find_missed_issues(context: Context, task: Task) -> None:
    """Compare the records of a repository's issues about CI with GitHub's search. Key: its id."""
    if not task.key.isdigit():
        raise GiveUp(f"{task.key!r} is not the id of a repository")
    identifier = int(task.key)
    async with context.store.read() as tx:
        repo = (await rows.listing_repositories(tx, context.settings)).get(identifier)
        known = {row["number"]: row["updated_at"] or 0 for row in await rows.candidate_issues(tx, identifier)}
    if repo is None:
        return
    client = context.app_for(repo).client(repo, issues="read")
    try:
        issues, complete = await _search(context, client, repo)
        if complete:
            issues |= await _look_up(context, client, repo, sorted(known.keys() - issues.keys()))
    except GitHubRefused as error:
        log.info("issues cannot be searched", repo=repo, reason=str(error))
        return
    behind = [
        issue
        for number, issue in issues.items()
        if (as_time(issue["updated_at"]) or 0) > known.get(number, -1)
    ]
    for issue in behind:
        async with context.store.transaction() as tx:
            await inbox.store_delivery(tx, _as_delivery({"id": identifier, "full_name": repo}, issue))
    if behind:
        log.info("issues found", repo=repo, issues=len(behind))


async def _refusals(context: Context, repo: str, issues: Sequence[CandidateRow]) -> dict[str, str]:
    """Return, by author, why their issues change nothing; authors who may disable tests are absent."""
    trusted = {login.casefold() for login in context.settings.of(DisabledSettings).ci_disable_authors}
    # members first: strangers, who can open any number of issues, never take their place
    ordered = sorted(issues, key=lambda issue: issue["author_association"] not in TRUSTED_ASSOCIATIONS)
    authors = dict.fromkeys(issue["author"] or "" for issue in ordered)
    unknown = [login for login in authors if login and login.casefold() not in trusted]
    refusals = {"": "GitHub does not name its author"}
    app = context.app_for(repo)
    for login in unknown[:AUTHORS_MOST]:
        role = await app.role(repo, login)
        if not may_write(role):
            refusals[login] = f"{login} has no write access to {repo}"
    for login in unknown[AUTHORS_MOST:]:
        refusals[login] = f"{login} is one of over {AUTHORS_MOST} authors: GitHub is asked about no more"
    return refusals


def _understood(
    repository_id: int, issue: CandidateRow, devices: frozenset[str], refusal: str | None
) -> DisablingRow:
    reading = issue_text.read_issue(issue["title"], issue["body"], devices)
    return {
        "repository_id": repository_id,
        "number": issue["number"],
        "kind": reading.kind,
        "unstable": reading.unstable,
        "title": issue["title"],
        "author": issue["author"],
        "url": issue["url"],
        "listed": bool(reading.entries) and refusal is None,
        "entries": [(entry.name, list(entry.platforms)) for entry in reading.entries],
        "problems": [*([refusal] if refusal else ()), *reading.problems],
        "created_at": issue["created_at"],
        "updated_at": issue["updated_at"],
    }


async def _search(context: Context, client: Client, repo: str) -> tuple[IssuesByNumber, bool]:
    """Search for open issues with our words in their titles; return them, and whether the result is complete."""
    issues: IssuesByNumber = {}
    complete = True
    for word in (issue_text.DISABLED, issue_text.UNSTABLE):
        for page in range(1, MOST_PAGES + 1):
            await collection.spend_call(context, repo)
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
            items = [issue for issue in answer["items"] if str(issue["title"]).startswith(f"{word} ")]
            issues |= {issue["number"]: issue for issue in items}
            if len(answer["items"]) < PAGE:
                break
        complete &= not answer["incomplete_results"] and answer["total_count"] <= PAGE * MOST_PAGES
    return issues, complete


async def _look_up(context: Context, client: Client, repo: str, numbers: list[int]) -> IssuesByNumber:
    """Fetch issues as they are now."""
    issues: IssuesByNumber = {}
    for number in numbers[:LOOKUPS_MOST]:
        await collection.spend_call(context, repo)
        try:
            issues[number] = await client.getitem(client.path("issues/{number}"), {"number": str(number)})
        except GitHubRefused as error:
            if not error.gone:
                raise
    return issues


def _as_delivery(repository: dict[str, Any], issue: dict[str, Any]) -> inbox.Incoming:
    body = {"action": "reconciled", "issue": issue, "repository": repository}
    content = f"issues {repository['id']} {as_int(issue['id'])} {issue['updated_at']}"
    return deliveries.to_incoming(deliveries.content_guid(content), "issues", body, source="api")
