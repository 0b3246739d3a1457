"""The options of searches for culprits."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass

from bot.core.settings import option

FIELDS = frozenset({"workflow", "sha"})
TAG = re.compile(r"[A-Za-z0-9._/-]{1,200}")


def tag(text: str) -> str:
    """Read the pattern of a tag that has upstream's CI run a commit."""
    try:
        fields = {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
        made = text.format(workflow="trunk", sha="0" * 40)
    except (ValueError, KeyError, IndexError) as error:
        raise ValueError(f"{text[:80]!r} is not a pattern of a tag: {error}") from None
    if not fields <= FIELDS or "sha" not in fields:
        raise ValueError("a pattern of a tag has {sha}, and may have {workflow}: ciflow/{workflow}/{sha}")
    if not TAG.fullmatch(made) or ".." in made or "//" in made or made.strip("/") != made:
        raise ValueError(f"{made[:80]!r} would not be a valid name of a tag")
    return text


@dataclass(frozen=True, kw_only=True)
class CulpritsSettings:
    """How upstream's own CI is run on a commit that it has not run on."""

    ci_bisect_tag: str | None = option(
        "Tag that has upstream's own CI run a commit for a search, as in ciflow/{workflow}/{sha}; the App creates it, "
        "which takes the permission `contents: write` there. Unset: only runs that exist are run again.",
        tag,
        default=None,
    )
