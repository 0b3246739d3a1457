"""Where is the allowlist read from? `owner/repo:path@ref` names a file on GitHub, anything else one on disk."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAMED = re.compile(r"(?P<repo>[A-Za-z0-9][\w-]*/[\w.-]+):(?P<rest>.+)")


@dataclass(frozen=True, kw_only=True)
class OnGitHub:
    """A file in a repository; `ref` None is its default branch."""

    repo: str
    path: str
    ref: str | None


def on_github(setting: str) -> OnGitHub | None:
    """Return the file on GitHub a setting names, None when it is a path on disk."""
    named = _NAMED.fullmatch(setting.strip())
    if named is None:
        return None
    path, at, ref = named["rest"].rpartition("@")
    if not at:
        path, ref = ref, ""
    return OnGitHub(repo=named["repo"], path=path.strip("/"), ref=ref or None) if path.strip("/") else None
