"""command: somebody gave commands in a comment (key: the delivery's GUID).

Each is recorded before anything is done about it, by its comment and place: however often the comment comes, it is
carried out once. Reactions answer at once; what needs words is in our comment.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import structlog

from bot.domain import commands as language
from bot.domain.authors import may_write
from bot.domain.reading import as_time
from bot.errors import GitHubRefused, GiveUp, RetryLater
from bot.store import commands
from bot.tasks import subject
from bot.tasks.carry_out import Asked, carry_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.domain.commands import Command
    from bot.store.queue import Task

log = structlog.get_logger("bot.tasks.command")

Row = dict[str, Any]
MOST_AN_HOUR = 60  # commands of one person in one repository; further ones get no answer at all
MOST_ON_PULL = 100  # commands in an hour on one pull request; further ones only of who may write there
HOUR = 3_600_000  # milliseconds
SEEN, QUEUED, CONFUSED = "eyes", "rocket", "confused"
OPEN_TO_ALL = frozenset({"help", "status", ""})


async def run(context: Context, task: Task) -> None:
    """Carry out every command of one comment."""
    async with context.store.read() as tx:
        _, body = await subject.delivery(context, tx, task)
    try:
        about, said_at = _about(body, task.key), as_time(body["comment"]["created_at"])
        if not context.settings.is_upstream(about["upstream_repo"]):
            return
        given = await asyncio.to_thread(language.parse, body["comment"]["body"])
    except (KeyError, TypeError) as error:
        raise GiveUp(f"the comment lacks what a command needs: {error!r}") from error
    if said_at is None:
        raise GiveUp("the comment does not say when it was made")
    by_author = body["issue"]["user"] is not None and body["issue"]["user"]["login"] == about["login"]
    taken = await _take(context, about, given)
    fresh = [(row, command) for row, command in taken if row["state"] == "seen"]
    if fresh:
        with contextlib.suppress(RetryLater):  # it delays nothing
            await _react(context, about, SEEN)
    states = [row["state"] for row, _ in taken if row["state"] != "seen"]
    for row, command in fresh:
        states.append(await _one(context, row, command, by_author=by_author, said_at=said_at))
    for state, reaction in (("done", QUEUED), ("refused", CONFUSED)):
        if state in states:
            await _react(context, about, reaction)


def _about(body: Row, guid: str) -> Row:
    return {
        "upstream_repo": body["repository"]["full_name"],
        "comment_id": body["comment"]["id"],
        "pr_number": body["issue"]["number"],
        "login": body["comment"]["user"]["login"],
        "delivery_id": guid,
    }


async def _take(context: Context, about: Row, given: Sequence[Command]) -> list[tuple[Row, Command]]:
    """Record the commands of a comment; those recorded before stay, further ones of somebody tireless are dropped.

    Where many have given commands on one pull request, only who may write there gives more.
    """
    repo, login = about["upstream_repo"], about["login"]
    async with context.store.read() as tx:
        on_pull = await commands.count_on_pull(tx, repo, about["pr_number"], since=tx.now - HOUR)
    welcome = on_pull < MOST_ON_PULL or may_write(await context.github.role(repo, login))
    taken: list[tuple[Row, Command]] = []
    async with context.store.transaction() as tx:
        for position, command in enumerate(given):
            row = about | {"position": position, "verb": command.verb, "text": command.text}
            by_person = await commands.count_by_person(tx, repo, login, since=tx.now - HOUR)
            room = welcome and by_person < MOST_AN_HOUR
            if seen := (await commands.see(tx, row) if room else await commands.find(tx, row)):
                taken.append((seen, command))
    if len(taken) < len(given):
        log.warning("too many commands", repo=repo, login=login, pull=about["pr_number"])
    return taken


async def _one(context: Context, row: Row, command: Command, *, by_author: bool, said_at: int) -> str:
    """Carry one command out; returns its state."""
    repo, login, number = row["upstream_repo"], row["login"], row["pr_number"]
    asked = Asked(
        repo=repo,
        number=number,
        login=login,
        by_author=by_author,
        role=None if command.verb in OPEN_TO_ALL else await context.github.role(repo, login),
        cause=f"comment {row['comment_id']} command {row['position']}",
        said_at=said_at,
    )
    async with context.store.transaction() as tx:
        outcome = await carry_out(tx, context.settings, asked, command)
        state = "done" if outcome.done else "refused"
        await commands.settle(tx, row, state=state, answer=outcome.answer, head_sha=outcome.head_sha)
        tx.publish(repo, number)
    log.info("command", repo=repo, pull=number, login=login, verb=command.verb, state=state)
    return state


async def _react(context: Context, about: Row, content: str) -> None:
    """Put a reaction under the comment; the same one twice is one. A comment that is gone needs none.

    Anybody can ask for reactions, so they come out of what gates and verdicts leave.
    """
    client = context.github.sparing(about["upstream_repo"], pull_requests="write")
    url = client.path(f"issues/comments/{about['comment_id']}/reactions")
    try:
        await client.post(url, data={"content": content})
    except GitHubRefused as error:
        log.info("no reaction", reason=str(error))
