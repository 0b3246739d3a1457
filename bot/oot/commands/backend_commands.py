"""Commands in a backend's own repository: `/oot ping`, in any of its issues."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from bot.core.errors import GitHubRefused, RetryLater
from bot.oot.allowlist import rows as allowlists
from bot.oot.commands import parsing
from bot.oot.dispatch.approval import may_write
from bot.oot.dispatch.ping import request_ping

if TYPE_CHECKING:
    from bot.context import Context
    from bot.oot.allowlist.allowlist import Entry
    from bot.oot.commands.comment_commands import Comment

log = structlog.get_logger("bot.oot.commands.backend_commands")

TAKEN, REFUSED = "rocket", "confused"  # reactions


async def carry_out(context: Context, comment: Comment) -> None:
    """Ping the backend where a comment asks for it and its author may; in other repositories nothing is done."""
    repo, login = comment.request.repo, comment.request.login
    async with context.store.read() as tx:
        allowlist = await allowlists.in_force(tx)
    entry = allowlist.find(repo) if allowlist else None
    given = await asyncio.to_thread(parsing.parse_commands, comment.body) if entry else ()
    if entry is None or not any(command.verb == "ping" for command in given):
        return
    allowed = _is_on_call(entry, login) or may_write(await context.backend_github.role(repo, login))
    done = allowed and await _request(context, entry, comment)
    log.info("ping by a comment", backend=repo, login=login, taken=done)
    await _react(context, comment, TAKEN if done else REFUSED)


async def _request(context: Context, entry: Entry, comment: Comment) -> bool:
    async with context.store.transaction() as tx:
        login, cause = comment.request.login, f"comment {comment.id} in {entry.key}"
        return await request_ping(tx, entry, by=login, cause=cause) is not None


def _is_on_call(entry: Entry, login: str) -> bool:
    return login.casefold() in {name.casefold() for name in entry.oncalls}


async def _react(context: Context, comment: Comment, content: str) -> None:
    """Add a reaction, where the App may; the outcome is on the backend's page in any case.

    The App does not ask for the permission: backends would have to grant it for nothing else.
    """
    request, app = comment.request, context.backend_github
    client = app.low_priority(request.repo, since=request.commented_at, issues="write")
    try:
        await client.post(client.path(f"issues/comments/{comment.id}/reactions"), data={"content": content})
    except (GitHubRefused, RetryLater) as error:
        log.info("no reaction", reason=str(error))
