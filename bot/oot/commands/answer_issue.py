"""The task `command_answer`: a command in an issue is answered there (key: `owner/repo/comment/position`).

That takes the permission `issues: write`; without it there is no answer, as there is no reaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.core import escaping
from bot.core.errors import GitHubRefused, GiveUp
from bot.oot.results.store import commands

if TYPE_CHECKING:
    from bot.context import Context
    from bot.github.client import Client
    from bot.oot.results.tables import CommandRow
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.oot.commands.answer_issue")

KIND = "command_answer"


def key(repo: str, comment_id: int, position: int) -> str:
    """Return the key of the task that answers a command."""
    return f"{repo}/{comment_id}/{position}"


async def answer_command(context: Context, task: Task) -> None:
    """Write the answer once: an earlier one is looked for first."""
    repo, _, rest = task.key.rpartition("/")
    repo, _, comment_id = repo.rpartition("/")
    if not (comment_id.isdigit() and rest.isdigit()):
        raise GiveUp(f"{task.key!r} names no command")
    async with context.store.read() as tx:
        about = {"upstream_repo": repo, "comment_id": int(comment_id), "position": int(rest)}
        command = await commands.find(tx, about)
    if command is None or command["state"] == "seen":
        return
    client = context.github.low_priority(repo, issues="write")
    try:
        if not await _is_answered(context, client, command):
            await client.post(
                client.path(f"issues/{command['pr_number']}/comments"), data={"body": _text(command)}
            )
    except GitHubRefused as error:
        log.info("no answer in the issue", repo=repo, issue=command["pr_number"], reason=str(error))


async def _is_answered(context: Context, client: Client, command: CommandRow) -> bool:
    url = client.path(f"issues/{command['pr_number']}/comments{{?per_page}}")
    async for one in client.getiter(url, {"per_page": "100"}):
        app_id = (one.get("performed_via_github_app") or {}).get("id")
        if app_id == context.github.app_id and str(one.get("body", "")).startswith(_marker(command)):
            return True
    return False


def _marker(command: CommandRow) -> str:
    return f"<!-- ootbot:answer {command['comment_id']}.{command['position']} -->"


def _text(command: CommandRow) -> str:
    said = escaping.code(command["text"])
    return f"{_marker(command)}\n{said}: {escaping.text(command['answer'])}\n"
