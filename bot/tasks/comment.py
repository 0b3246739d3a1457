"""comment: the one comment of a pull request says what is true (key: `owner/repo#number`).

Found by its stored id, else by its marker and our App as author: nobody else's comment is ever taken for ours.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import structlog

from bot import query
from bot.domain import comment
from bot.errors import GitHubRefused, GiveUp
from bot.store import pulls

if TYPE_CHECKING:
    from bot.context import Context
    from bot.domain.view import Pull
    from bot.github import Client
    from bot.store.queue import Task

log = structlog.get_logger("bot.tasks.comment")

Row = dict[str, Any]
GONE = frozenset({404, 410})


async def run(context: Context, task: Task) -> None:
    """Write the comment when it differs from what was written last."""
    repo, _, number = task.key.rpartition("#")
    if not number.isdigit():
        raise GiveUp(f"{task.key!r} names no pull request")
    async with context.store.read() as tx:
        state = await query.pull_state(tx, context.settings, repo, int(number))
        present = await pulls.comment(tx, repo, int(number))
    if state.current is None:
        return
    body, digest = body_of(state.current.view)
    if present and present["digest"] == digest:
        return
    client = context.github.client(repo, pull_requests="write")
    written = await _write(context, client, state, present, body)
    async with context.store.transaction() as tx:
        await pulls.wrote_comment(tx, repo, int(number), comment_id=written, digest=digest)


def body_of(pull: Pull) -> tuple[str, str]:
    """Return the comment a pull request should have, and what identifies it."""
    body = comment.render(pull)
    return body, hashlib.sha256(body.encode()).hexdigest()


async def _write(
    context: Context, client: Client, state: query.PullState, present: Row | None, body: str
) -> int:
    """Edit the comment that is there, else make it; returns its id."""
    if present and present["comment_id"] is not None and await _edit(client, present["comment_id"], body):
        return int(present["comment_id"])
    if present is None:
        async with context.store.transaction() as tx:
            await pulls.intend_comment(tx, state.repo, state.number)
    found = await _find(context, client, state.number)
    if found is not None and await _edit(client, found, body):
        return found
    created = await client.post(client.path(f"issues/{state.number}/comments"), data={"body": body})
    log.info("comment made", repo=state.repo, pull=state.number)
    return int(created["id"])


async def _edit(client: Client, comment_id: int, body: str) -> bool:
    """Edit a comment; returns False when somebody has deleted it."""
    try:
        await client.patch(client.path(f"issues/comments/{comment_id}"), data={"body": body})
    except GitHubRefused as error:
        if error.status in GONE:
            return False
        raise
    return True


async def _find(context: Context, client: Client, number: int) -> int | None:
    """Return our comment's id, looked for over all pages."""
    url = client.path(f"issues/{number}/comments{{?per_page}}")
    async for said in client.getiter(url, {"per_page": "100"}):
        app = said.get("performed_via_github_app") or {}
        if app.get("id") == context.github.app_id and str(said.get("body", "")).startswith(comment.MARKER):
            return int(said["id"])
    return None
