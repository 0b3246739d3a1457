"""What does the allowlist's file say? Its text, read from disk or through an App from GitHub."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import TYPE_CHECKING

from bot.domain.allowlist_source import OnGitHub, on_github
from bot.domain.allowlist_yaml import MAX_BYTES
from bot.errors import GitHubRefused, OotbotError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.github import GitHubApp


class NoText(OotbotError):
    """There is no text to be checked; the message says why."""


async def read(source: str, app_for: Callable[[str], GitHubApp]) -> str:
    """Return the text of the file a setting names; `app_for` says which App reads a repository.

    Raises NoText, or RetryLater while GitHub cannot be reached.
    """
    where = on_github(source)
    try:
        if where is None:
            return (await asyncio.to_thread(_from_disk, Path(source))).decode()
        return (await _from_github(app_for(where.repo), where)).decode()
    except (OSError, UnicodeDecodeError) as problem:
        raise NoText(str(problem)) from problem


def _from_disk(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise NoText(f"{path} is larger than 1 MiB")
    return content


async def _from_github(app: GitHubApp, where: OnGitHub) -> bytes:
    client = app.reader(where.repo, contents="read")
    wanted = {"path": where.path} | ({"ref": where.ref} if where.ref else {})
    try:
        found = await client.getitem(client.path("contents/{+path}{?ref}"), wanted)
    except GitHubRefused as problem:
        raise NoText(f"{problem}; the App needs the permission contents: read there") from problem
    if not isinstance(found, dict) or found.get("type") != "file":
        raise NoText(f"{where.path} is no file")
    if found.get("encoding") != "base64":
        raise NoText(f"{where.path} is larger than 1 MiB")
    return base64.b64decode(found["content"])
