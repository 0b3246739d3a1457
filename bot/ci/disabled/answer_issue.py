"""Task disabled_answer: writes our one answer on an issue that disables something, or does not, and edits it later.

Only where the installation granted `issues: write`, which the App does not ask for; the page of the list says the same.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import structlog

from bot.ci.disabled import answer_rows, answer_text, rows
from bot.core.errors import GitHubRefused, GiveUp
from bot.oot.publish.create_once import creating

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.disabled.tables import DisablingRow
    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.github.client import Client
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.ci.disabled.answer_issue")


async def request_answers(
    context: Context, tx: Transaction, repo: str, repository_id: int, issues: Sequence[DisablingRow]
) -> None:
    """Have those issues of a repository answered on which our answer is missing or says something else."""
    if not issues or not await answer_rows.may_write(tx, repo, context.app_for(repo).app_id):
        return
    written = await answer_rows.digests(tx, repository_id)
    for issue in issues:
        if written.get(issue["number"]) != answer_rows.text_digest(_text(context.settings, repo, issue)):
            tx.enqueue("disabled_answer", f"{repository_id}/{issue['number']}")


async def write_answer(context: Context, task: Task) -> None:
    """Make our answer on one issue say what it should (key: repository's id/number)."""
    identifier, _, digits = task.key.partition("/")
    if not (identifier.isdigit() and digits.isdigit()):
        raise GiveUp(f"{task.key!r} is no issue")
    repository_id, number = int(identifier), int(digits)
    async with context.store.read() as tx:
        repo = (await rows.repositories(tx, context.settings)).get(repository_id)
        issue = await rows.find_issue(tx, repository_id, number)
        present = await answer_rows.find_answer(tx, repository_id, number)
        if repo is None or issue is None:
            return
        if not await answer_rows.may_write(tx, repo, context.app_for(repo).app_id):
            return
    text = _text(context.settings, repo, issue)
    if present and present["digest"] == answer_rows.text_digest(text):
        return
    try:
        comment_id = await _write(context, repo, issue, present and present["comment_id"], text)
    except GitHubRefused as error:
        log.warning("no answer may be written", repo=repo, issue=number, reason=str(error))
        return
    async with context.store.transaction() as tx:
        digest = answer_rows.text_digest(text)
        await answer_rows.record_answer(tx, repository_id, number, comment_id=comment_id, digest=digest)


async def _write(context: Context, repo: str, issue: DisablingRow, known: int | None, text: str) -> int:
    """Edit our answer, or create it; returns its id."""
    app = context.app_for(repo)
    client = app.low_priority(repo, issues="write")
    if known is not None and await _edit(client, known, text):
        return known
    begin = partial(answer_rows.begin_answer, repository_id=issue["repository_id"], number=issue["number"])
    async with creating(context, begin) as creation:
        found = None if creation.fresh else await _find(client, issue["number"], app.app_id)
        if found is not None and await _edit(client, found, text):
            return found
        return await creation.create(partial(_create, client, issue["number"], text))


async def _create(client: Client, number: int, text: str) -> int:
    made = await client.post(client.path(f"issues/{number}/comments"), data={"body": text})
    return int(made["id"])


async def _edit(client: Client, comment_id: int, text: str) -> bool:
    """Edit a comment; returns False when it was deleted."""
    try:
        await client.patch(client.path(f"issues/comments/{comment_id}"), data={"body": text})
    except GitHubRefused as error:
        if error.gone:
            return False
        raise
    return True


async def _find(client: Client, number: int, app_id: int) -> int | None:
    """Return the id of our answer, looked for on all pages."""
    url = client.path(f"issues/{number}/comments{{?per_page}}")
    async for one in client.getiter(url, {"per_page": "100"}):
        author = (one.get("performed_via_github_app") or {}).get("id")
        if author == app_id and str(one.get("body", "")).startswith(answer_text.MARKER):
            return int(one["id"])
    return None


def _text(settings: Settings, repo: str, issue: DisablingRow) -> str:
    return answer_text.render_answer(issue, f"{settings.url}/{repo}/disabled")
