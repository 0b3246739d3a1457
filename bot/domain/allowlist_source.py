"""Where is the allowlist read from, and which accounts take part? `owner/repo:path@ref` is a file on GitHub."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.domain.allowlist import Allowlist

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
