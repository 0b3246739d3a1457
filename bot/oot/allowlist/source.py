"""The allowlist's source: a path on disk, or `owner/repo:path@ref` on GitHub; and its text."""

from __future__ import annotations

import asyncio
import base64
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bot.core.errors import GitHubRefused, OotbotError, in_words
from bot.oot.allowlist.yaml_document import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bot.github.client import GitHubApp
    from bot.oot.allowlist.allowlist import Allowlist

_NAMED = re.compile(r"(?P<repo>[A-Za-z0-9][\w-]*/[\w.-]+):(?P<rest>.+)")


@dataclass(frozen=True, kw_only=True)
class OnGitHub:
    """A file in a repository; `ref` None is its default branch."""

    repo: str
    path: str
    ref: str | None


def accounts(upstreams: Iterable[str], allowlist: Allowlist | None, setting: str) -> set[str]:
    """Return the accounts, case folded, of upstream, of the listed backends and of the allowlist's own repository."""
    repos = [*upstreams, *(entry.repo for entry in (allowlist.entries if allowlist else ()))]
    if source := on_github(setting):
        repos.append(source.repo)
    return {repo.partition("/")[0].casefold() for repo in repos}


def on_github(setting: str) -> OnGitHub | None:
    """Return the file on GitHub a setting names, None when it is a path on disk."""
    named = _NAMED.fullmatch(setting.strip())
    if named is None:
        return None
    path, at, ref = named["rest"].rpartition("@")
    if not at:
        path, ref = ref, ""
    return OnGitHub(repo=named["repo"], path=path.strip("/"), ref=ref or None) if path.strip("/") else None


class NoText(OotbotError):
    """There is no text to be checked; the message says why."""


async def read_source(source: str, app_for: Callable[[str], GitHubApp]) -> str:
    """Return the text of the file a setting names; `app_for` says which App reads a repository.

    Raises NoText, or RetryLater while GitHub cannot be reached.
    """
    where = on_github(source)
    try:
        if where is None:
            return (await asyncio.to_thread(_from_disk, Path(source))).decode()
        return (await _from_github(app_for(where.repo), where)).decode()
    except OSError as problem:
        raise NoText(in_words(problem).removeprefix(f"{source}: ")) from problem
    except UnicodeDecodeError as problem:
        raise NoText("it is not text in UTF-8") from problem


def _from_disk(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise NoText(f"{path} is larger than 1 MiB")
    return content


async def _from_github(app: GitHubApp, where: OnGitHub) -> bytes:
    client = app.caching(where.repo, contents="read")
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
