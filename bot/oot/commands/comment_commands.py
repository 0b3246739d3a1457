"""The task `command`: carries out the commands of one comment, and answers those in issues."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog

from bot.core import escaping
from bot.core.errors import GitHubRefused, GiveUp, RetryLater
from bot.core.json_fields import as_time
from bot.oot.allowlist import versions
from bot.oot.commands import syntax
from bot.oot.commands.execute_command import CommandRequest, execute_command
from bot.oot.commands.syntax import further_commands
from bot.oot.dispatch.ping import request_ping
from bot.oot.dispatch.redispatch import may_write
from bot.oot.results import dispatches, task_keys
from bot.oot.results.task_keys import request_publish

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.github.client import Client
    from bot.oot.allowlist.entry import Entry
    from bot.oot.commands.syntax import Command
    from bot.oot.results.tables import CommandRow
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.oot.commands.comment_commands")

MOST_PER_PERSON = 60  # commands in an hour of one person in one repository; further ones get no answer at all
# commands in an hour on one pull request; then only people with write access may give more
MOST_ON_PULL = 100
HOUR = 3_600_000  # milliseconds
REACTION_SEEN = "eyes"
REACTIONS = {"done": "rocket", "refused": "confused"}  # by the command's state
NEEDS_NO_ROLE = frozenset({"help", "status", "ping", ""})
ANSWER_KIND = "command_answer"
TAKEN, REFUSED = "rocket", "confused"  # reactions


@dataclass(frozen=True, kw_only=True)
class Comment:
    """The comment with the commands."""

    request: CommandRequest  # each command's, without what GitHub says of the person's role
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
            request = CommandRequest(
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
        await carry_out_ping(context, comment)
        return
    usages = {verb: command.usage for verb, command in further_commands(context.features).items()}
    commands = await asyncio.to_thread(syntax.parse_commands, comment.body, usages)
    if not comment.on_pull:
        commands = tuple(command for command in commands if command.verb in usages)
    recorded = await _record_commands(context, comment, commands)
    fresh = [(row, command) for row, command in recorded if row["state"] == "seen"]
    if fresh:
        with contextlib.suppress(RetryLater):  # the reaction delays nothing
            await _react(context, comment, REACTION_SEEN)
    states = [row["state"] for row, _ in recorded if row["state"] != "seen"]
    for row, command in fresh:
        states.append(await _execute_recorded(context, comment, row, command))
    for state, reaction in REACTIONS.items():
        if state in states:
            await _react(context, comment, reaction)


def answer_key(repo: str, comment_id: int, position: int) -> str:
    """Return the key of the task that answers a command."""
    return f"{repo}/{comment_id}/{position}"


async def answer_command(context: Context, task: Task) -> None:
    """Write the answer once: an earlier answer is looked for first."""
    repo, _, rest = task.key.rpartition("/")
    repo, _, comment_id = repo.rpartition("/")
    if not (comment_id.isdigit() and rest.isdigit()):
        raise GiveUp(f"{task.key!r} names no command")
    async with context.store.read() as tx:
        about = {"upstream_repo": repo, "comment_id": int(comment_id), "position": int(rest)}
        command = await dispatches.find_command(tx, about)
    if command is None or command["state"] == "seen":
        return
    client = context.github.low_priority(repo, issues="write")
    try:
        if not await _is_answered(context, client, command):
            await client.post(
                client.path(f"issues/{command['pr_number']}/comments"), data={"body": _answer_text(command)}
            )
    except GitHubRefused as error:
        log.info("no answer in the issue", repo=repo, issue=command["pr_number"], reason=str(error))


async def carry_out_ping(context: Context, comment: Comment) -> None:
    """Ping the backend if a comment asks for it and its author may; do nothing in other repositories."""
    repo, login = comment.request.repo, comment.request.login
    async with context.store.read() as tx:
        allowlist = await versions.read_in_force(tx)
    entry = allowlist.find(repo) if allowlist else None
    commands = await asyncio.to_thread(syntax.parse_commands, comment.body) if entry else ()
    if entry is None or not any(command.verb == "ping" for command in commands):
        return
    allowed = _is_on_call(entry, login) or may_write(await context.backend_github.role(repo, login))
    done = allowed and await _request_ping(context, entry, comment)
    log.info("ping by a comment", backend=repo, login=login, taken=done)
    await _react_to_ping(context, comment, TAKEN if done else REFUSED)


async def _record_commands(
    context: Context, comment: Comment, commands: Sequence[Command]
) -> list[tuple[CommandRow, Command]]:
    """Record the commands of a comment within the limits; commands recorded before are returned in any case."""
    repo, number, login = comment.request.repo, comment.request.number, comment.request.login
    async with context.store.read() as tx:
        on_pull = await dispatches.count_commands_on_pull(tx, repo, number, since=tx.now - HOUR)
    accepted = on_pull < MOST_ON_PULL or may_write(await context.github.role(repo, login))
    recorded: list[tuple[CommandRow, Command]] = []
    async with context.store.transaction() as tx:
        for position, command in enumerate(commands):
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
            by_person = await dispatches.count_commands_by_person(tx, repo, login, since=tx.now - HOUR)
            within = accepted and by_person < MOST_PER_PERSON
            if known := (
                await dispatches.record_command(tx, row) if within else await dispatches.find_command(tx, row)
            ):
                recorded.append((known, command))
    if len(recorded) < len(commands):
        log.warning("too many commands", repo=repo, login=login, pull=number)
    return recorded


async def _execute_recorded(context: Context, comment: Comment, row: CommandRow, command: Command) -> str:
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
            usage = syntax.usage({verb: command.usage for verb, command in further.items()})
            outcome = await execute_command(tx, context.settings, request, command, usage=usage)
        state = "done" if outcome.done else "refused"
        await dispatches.settle_command(
            tx, row, state=state, answer=outcome.answer, head_sha=outcome.head_sha
        )
        if comment.on_pull:
            request_publish(tx, repo, number)
        else:
            tx.enqueue(ANSWER_KIND, answer_key(repo, comment.id, row["position"]))
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


async def _is_answered(context: Context, client: Client, command: CommandRow) -> bool:
    url = client.path(f"issues/{command['pr_number']}/comments{{?per_page}}")
    async for comment in client.getiter(url, {"per_page": "100"}):
        app_id = (comment.get("performed_via_github_app") or {}).get("id")
        if app_id == context.github.app_id and str(comment.get("body", "")).startswith(
            _answer_marker(command)
        ):
            return True
    return False


def _answer_marker(command: CommandRow) -> str:
    return f"<!-- ootbot:answer {command['comment_id']}.{command['position']} -->"


def _answer_text(command: CommandRow) -> str:
    said = escaping.code(command["text"])
    return f"{_answer_marker(command)}\n{said}: {escaping.text(command['answer'])}\n"


async def _request_ping(context: Context, entry: Entry, comment: Comment) -> bool:
    async with context.store.transaction() as tx:
        login, cause = comment.request.login, f"comment {comment.id} in {entry.key}"
        return await request_ping(tx, entry, by=login, cause=cause) is not None


def _is_on_call(entry: Entry, login: str) -> bool:
    return login.casefold() in {name.casefold() for name in entry.oncalls}


async def _react_to_ping(context: Context, comment: Comment, content: str) -> None:
    """Add a reaction if the App may; the outcome is on the backend's page in any case.

    The App does not ask for the permission: backends would have to grant it for nothing else.
    """
    request, app = comment.request, context.backend_github
    client = app.low_priority(request.repo, since=request.commented_at, issues="write")
    try:
        await client.post(client.path(f"issues/comments/{comment.id}/reactions"), data={"content": content})
    except (GitHubRefused, RetryLater) as error:
        log.info("no reaction", reason=str(error))
