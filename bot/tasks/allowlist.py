"""allowlist: the file that says who may take part is read, checked and, when it is valid, put in force.

Read again and again (bot/tasks/__init__.py says how often) and at once after a push that may have changed it. On
GitHub an unchanged file is answered with 304, which costs nothing.
"""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from bot.domain import allowlist
from bot.domain.allowlist_source import OnGitHub, on_github
from bot.errors import GitHubRefused, RetryLater
from bot.store import allowlists
from bot.tasks import publish

if TYPE_CHECKING:
    from bot.context import Context
    from bot.store.queue import Task

log = structlog.get_logger("bot.tasks.allowlist")

MOST_BYTES = 1024 * 1024
SOON = 60.0  # seconds: GitHub may ask for longer, but nobody asks it anything then


class Unreadable(Exception):
    """There is no text to be checked; the message says why."""


async def run(context: Context, _task: Task) -> None:
    """Read the allowlist again."""
    await refresh(context)


async def refresh(context: Context) -> None:
    """Read the allowlist; an unreadable or wrong one leaves the last good version in force and says so."""
    source = context.settings.allowlist
    content, error, unreachable = "", None, None
    try:
        content = await _read(context, source)
        allowlist.parse(content)
    except RetryLater as problem:
        unreachable = problem
        error = f"{source} cannot be read: GitHub cannot be reached: {problem}"
    except Unreadable as problem:
        error = f"{source} cannot be read: {problem}"
    except allowlist.AllowlistError as problem:
        error = allowlist.render_errors(problem)
    async with context.store.transaction() as tx:
        before = await allowlists.in_force(tx)
        changed = await allowlists.keep(tx, source=source, content=content, error=error)
        if changed and error is None and await allowlists.in_force(tx) != before:
            await publish.all_open(tx, context.settings)  # who blocks may have changed
    if changed and error:
        log.error("the allowlist is wrong; the last good version stays in force", source=source, error=error)
    elif changed:
        log.info("allowlist in force", source=source)
    if unreachable:
        raise RetryLater(str(unreachable), after=min(unreachable.after or SOON, SOON))


async def _read(context: Context, source: str) -> str:
    where = on_github(source)
    try:
        if where is None:
            return (await asyncio.to_thread(_from_disk, Path(source))).decode()
        return (await _from_github(context, where)).decode()
    except (OSError, UnicodeDecodeError) as problem:
        raise Unreadable(str(problem)) from problem


def _from_disk(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


async def _from_github(context: Context, where: OnGitHub) -> bytes:
    """Return the file, through the App of whichever side it lives on."""
    app = context.github if context.settings.is_upstream(where.repo) else context.relay
    client = app.reader(where.repo, contents="read")
    wanted = {"path": where.path} | ({"ref": where.ref} if where.ref else {})
    try:
        found = await client.getitem(client.path("contents/{+path}{?ref}"), wanted)
    except GitHubRefused as problem:
        raise Unreadable(f"{problem}; the App needs the permission contents: read there") from problem
    if not isinstance(found, dict) or found.get("type") != "file":
        raise Unreadable(f"{where.path} is no file")
    if found.get("encoding") != "base64":
        raise Unreadable(f"{where.path} is larger than 1 MiB")
    return base64.b64decode(found["content"])
