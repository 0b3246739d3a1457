"""command: somebody gave commands in a comment (key: the delivery's GUID).

Each is recorded before anything is done about it, by its comment and place: however often the comment comes, it is
carried out once. Reactions answer at once; what needs words is in our comment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from bot.domain import commands as language
from bot.domain.reading import decode
from bot.errors import GitHubRefused, GiveUp
from bot.store import commands, inbox
from bot.tasks.carry_out import Asked, carry_out

if TYPE_CHECKING:
    from bot.context import Context
    from bot.domain.commands import Command
    from bot.store.queue import Task

log = structlog.get_logger("bot.tasks.command")

Row = dict[str, Any]
MOST_AN_HOUR = 60  # commands of one person in one repository; further ones get no answer at all
HOUR = 3_600_000  # milliseconds
SEEN, QUEUED, CONFUSED = "eyes", "rocket", "confused"
OPEN_TO_ALL = frozenset({"help", "status", ""})


async def run(context: Context, task: Task) -> None:
    """Carry out every command of one comment."""
    async with context.store.read() as tx:
        stored = await inbox.find(tx, task.key)
    if stored is None:
        raise GiveUp(f"delivery {task.key} is not stored any more")
    body = decode(stored["body"])
    try:
        about = _about(body, task.key)
        given = language.parse(body["comment"]["body"])
    except (KeyError, TypeError) as error:
        raise GiveUp(f"the comment lacks what a command needs: {error!r}") from error
    if not context.settings.is_upstream(about["upstream_repo"]):
        return
    by_author = body["issue"]["user"] is not None and body["issue"]["user"]["login"] == about["login"]
    for position, command in enumerate(given):
        await _one(context, about | {"position": position}, command, by_author=by_author)


def _about(body: Row, guid: str) -> Row:
    return {
        "upstream_repo": body["repository"]["full_name"],
        "comment_id": body["comment"]["id"],
        "pr_number": body["issue"]["number"],
        "login": body["comment"]["user"]["login"],
        "delivery_id": guid,
    }


async def _one(context: Context, about: Row, command: Command, *, by_author: bool) -> None:
    repo, login = about["upstream_repo"], about["login"]
    async with context.store.transaction() as tx:
        if await commands.lately(tx, repo, login, since=tx.now - HOUR) >= MOST_AN_HOUR:
            log.warning("too many commands", repo=repo, login=login)
            return
        row = await commands.see(tx, about | {"verb": command.verb, "text": command.text})
    if row["state"] == "seen":
        await _react(context, about, SEEN)
        role = None if command.verb in OPEN_TO_ALL else await context.github.role(repo, login)
        asked = Asked(
            repo=repo,
            number=about["pr_number"],
            login=login,
            by_author=by_author,
            role=role,
            cause=f"comment {about['comment_id']} command {about['position']}",
        )
        async with context.store.transaction() as tx:
            outcome = await carry_out(tx, context.settings, asked, command)
            state = "done" if outcome.done else "refused"
            await commands.settle(tx, row, state=state, answer=outcome.answer, head_sha=outcome.head_sha)
            tx.enqueue("publish", f"{repo}#{about['pr_number']}")
        row = row | {"state": state}
        log.info("command", repo=repo, pull=about["pr_number"], login=login, verb=command.verb, state=state)
    await _react(context, about, QUEUED if row["state"] == "done" else CONFUSED)


async def _react(context: Context, about: Row, content: str) -> None:
    """Put a reaction under the comment; the same one twice is one. A comment that is gone needs none."""
    client = context.github.client(about["upstream_repo"], pull_requests="write")
    url = client.path(f"issues/comments/{about['comment_id']}/reactions")
    try:
        await client.post(url, data={"content": content})
    except GitHubRefused as error:
        log.info("no reaction", reason=str(error))
