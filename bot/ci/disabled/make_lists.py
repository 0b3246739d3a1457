"""Tasks disabled_check and disabled: make the lists of tests and jobs that CI may skip from the issues.

An issue counts if its author may write to the repository, by GitHub's word. Where GitHub cannot be asked the task is
tried again later, and the last lists stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.ci.disabled import (
    answer_issue,
    day_rows,
    issue_text,
    list_rows,
    lists,
    pull_commits,
    pull_rows,
    rows,
    sent_lists,
)
from bot.ci.disabled.settings import DisabledSettings
from bot.ci.trunk.store import unstable_jobs
from bot.core.errors import GiveUp
from bot.oot.dispatch.approval import TRUSTED_ASSOCIATIONS, may_write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.disabled.tables import CandidateRow, DisablingRow
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Changed, Transaction
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.ci.disabled.make_lists")

EVERY = 1800.0  # seconds: people lose their rights, and devices are listed, without an issue being touched
TOGETHER = 2.0  # seconds: many issues may change at once
PREFIXES = (f"{issue_text.DISABLED} ", f"{issue_text.UNSTABLE} ")
AUTHORS_MOST = 200  # that GitHub is asked about each time


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"disabled_check": EVERY}


async def request_changed_lists(tx: Transaction, changed: Changed) -> None:
    """Before a commit: request the lists of repositories whose issues have changed, and commits that may close some."""
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
    await pull_commits.request_changed_pulls(tx, changed)


async def request_all_lists(context: Context, _task: Task) -> None:
    """Request issues and pull requests that were missed, and the lists of every repository."""
    async with context.store.transaction() as tx:
        for identifier in sorted(await rows.repositories(tx, context.settings)):
            tx.enqueue("disabled", str(identifier))
            tx.enqueue("disabled_issues", str(identifier))
            for number in await pull_rows.unread_pulls(tx, identifier):
                pull_commits.request_pull(tx, identifier, number)


async def make_lists(context: Context, task: Task) -> None:
    """Make the lists of one repository (key: its id)."""
    if not task.key.isdigit():
        raise GiveUp(f"{task.key!r} is not the id of a repository")
    identifier = int(task.key)
    async with context.store.read() as tx:
        repo = (await rows.repositories(tx, context.settings)).get(identifier)
        issues = await rows.candidates(tx, identifier)
        devices = await rows.devices(tx)
    if repo is None:
        return
    refusals = await _refusals(context, repo, issues)
    read = [_understood(identifier, one, devices, refusals.get(one["author"] or "")) for one in issues]
    pages = {name: sent_lists.seal_list(make(read)) for name, make in lists.LISTS.items()}
    async with context.store.transaction() as tx:
        await rows.replace(tx, identifier, read)
        changed = [
            name for name, page in pages.items() if await list_rows.store_list(tx, identifier, name, page)
        ]
        await day_rows.note_day(tx, identifier, lists.disabled_tests(read))
        await unstable_jobs.replace_names(tx, identifier, lists.unstable_jobs(read))
        await answer_issue.request_answers(context, tx, repo, identifier, read)
    if changed:
        effective = sum(one["listed"] for one in read)
        log.info("lists made", repo=repo, lists=changed, issues=len(read), effective=effective)


async def _refusals(context: Context, repo: str, issues: Sequence[CandidateRow]) -> dict[str, str]:
    """Return, by author, why their issues change nothing; authors who may disable tests are not among them."""
    trusted = {login.casefold() for login in context.settings.of(DisabledSettings).ci_disable_authors}
    # members first: strangers, who can open any number of issues, never take their place
    ordered = sorted(issues, key=lambda one: one["author_association"] not in TRUSTED_ASSOCIATIONS)
    authors = dict.fromkeys(one["author"] or "" for one in ordered)
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
