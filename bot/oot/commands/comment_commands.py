"""The task `command`: the commands of one comment (key: the delivery's GUID).

Each is recorded before it is carried out, by its comment and position: however often the comment is delivered, it is
carried out once. Reactions answer at once; what needs words is in our comment.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog

from bot.core.errors import GitHubRefused, GiveUp, RetryLater
from bot.core.json_fields import as_time
from bot.oot.commands import answer_issue, backend_commands, parsing
from bot.oot.commands.execute_command import Request, execute_command
from bot.oot.commands.further import further_commands
from bot.oot.dispatch.approval import may_write
from bot.oot.results import task_keys
from bot.oot.results.store import commands
from bot.oot.results.task_keys import request_publish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.oot.commands.parsing import Command
    from bot.oot.results.tables import CommandRow
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.oot.commands.comment_commands")

MOST_PER_PERSON = 60  # commands in an hour of one person in one repository; further ones get no answer at all
MOST_ON_PULL = (
    100  # commands in an hour on one pull request; then only people with write access may give more
)
HOUR = 3_600_000  # milliseconds
REACTION_SEEN = "eyes"
REACTIONS = {"done": "rocket", "refused": "confused"}  # by the command's state
NEEDS_NO_ROLE = frozenset({"help", "status", "ping", ""})


@dataclass(frozen=True, kw_only=True)
class Comment:
    """The comment with the commands."""

    request: Request  # each command's, without what GitHub says of the person's role
    id: int
    guid: str  # the delivery's
    body: str
    on_pull: bool = True  # else on an issue: only further commands are given there

    @classmethod
    def of_event(cls, event: dict[str, Any], guid: str) -> Comment:
        """Read an issue_comment event; raises GiveUp."""
        try:
            comment, issue = event["comment"], event["issue"]
            created_at, login = as_time(comment["created_at"]), comment["user"]["login"]
            if created_at is None:
                raise GiveUp("the comment does not say when it was made")
            request = Request(
                repo=event["repository"]["full_name"],
                number=issue["number"],
                login=login,
                by_author=issue["user"] is not None and issue["user"]["login"] == login,
                commented_at=created_at,
            )
            on_pull = isinstance(issue.get("pull_request"), dict)
            return cls(request=request, id=comment["id"], guid=guid, body=comment["body"], on_pull=on_pull)
        except (KeyError, TypeError) as error:
            raise GiveUp(f"the comment lacks what a command needs: {error!r}") from error


async def carry_out_comment(context: Context, task: Task) -> None:
    """Carry out every command of one comment."""
    async with context.store.read() as tx:
        _, event = await task_keys.read_delivery(context, tx, task)
    comment = Comment.of_event(event, task.key)
    if not context.settings.is_upstream(comment.request.repo):
        await backend_commands.carry_out(context, comment)
        return
    usages = {verb: one.usage for verb, one in further_commands(context.features).items()}
    given = await asyncio.to_thread(parsing.parse_commands, comment.body, usages)
    if not comment.on_pull:
        given = tuple(one for one in given if one.verb in usages)
    recorded = await _record(context, comment, given)
    fresh = [(row, command) for row, command in recorded if row["state"] == "seen"]
    if fresh:
        with contextlib.suppress(RetryLater):  # the reaction delays nothing
            await _react(context, comment, REACTION_SEEN)
    states = [row["state"] for row, _ in recorded if row["state"] != "seen"]
    for row, command in fresh:
        states.append(await _execute(context, comment, row, command))
    for state, reaction in REACTIONS.items():
        if state in states:
            await _react(context, comment, reaction)


async def _record(
    context: Context, comment: Comment, given: Sequence[Command]
) -> list[tuple[CommandRow, Command]]:
    """Record the commands of a comment within the limits; those recorded before are returned in any case."""
    repo, number, login = comment.request.repo, comment.request.number, comment.request.login
    async with context.store.read() as tx:
        on_pull = await commands.count_on_pull(tx, repo, number, since=tx.now - HOUR)
    accepted = on_pull < MOST_ON_PULL or may_write(await context.github.role(repo, login))
    recorded: list[tuple[CommandRow, Command]] = []
    async with context.store.transaction() as tx:
        for position, command in enumerate(given):
            row = {
                "upstream_repo": repo,
                "comment_id": comment.id,
                "position": position,
                "pr_number": number,
                "login": login,
                "verb": command.verb,
                "text": command.text,
                "delivery_id": comment.guid,
            }
            by_person = await commands.count_by_person(tx, repo, login, since=tx.now - HOUR)
            within = accepted and by_person < MOST_PER_PERSON
            if known := (await commands.record(tx, row) if within else await commands.find(tx, row)):
                recorded.append((known, command))
    if len(recorded) < len(given):
        log.warning("too many commands", repo=repo, login=login, pull=number)
    return recorded


async def _execute(context: Context, comment: Comment, row: CommandRow, command: Command) -> str:
    """Carry one command out; returns its state."""
    repo, number, login = comment.request.repo, comment.request.number, comment.request.login
    request = replace(
        comment.request,
        role=None if command.verb in NEEDS_NO_ROLE else await context.github.role(repo, login),
        cause=f"comment {comment.id} command {row['position']}",
    )
    further = further_commands(context.features)
    outcome = None
    if command.verb in further and not command.problem:
        outcome = await further[command.verb].carry_out(context, request, command.words)
    async with context.store.transaction() as tx:
        if outcome is None:
            usage = parsing.usage({verb: one.usage for verb, one in further.items()})
            outcome = await execute_command(tx, context.settings, request, command, usage=usage)
        state = "done" if outcome.done else "refused"
        await commands.settle(tx, row, state=state, answer=outcome.answer, head_sha=outcome.head_sha)
        if comment.on_pull:
            request_publish(tx, repo, number)
        else:
            tx.enqueue(answer_issue.KIND, answer_issue.key(repo, comment.id, row["position"]))
    log.info("command", repo=repo, pull=number, login=login, verb=command.verb, state=state)
    return state


async def _react(context: Context, comment: Comment, content: str) -> None:
    """Add a reaction to the comment, which GitHub does once; a comment that was deleted needs none.

    Any person can cause reactions, so they get only the part of GitHub's rate limit that gates and verdicts leave.
    """
    needs = {"pull_requests" if comment.on_pull else "issues": "write"}
    client = context.github.low_priority(comment.request.repo, since=comment.request.commented_at, **needs)
    url = client.path(f"issues/comments/{comment.id}/reactions")
    try:
        await client.post(url, data={"content": content})
    except GitHubRefused as error:
        log.info("no reaction", reason=str(error))
