"""Patterns over the names of jobs: bounded, under RE2, so that no name and no pattern costs more than its length."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import re2

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PATTERNS_MOST = 200
CHARACTERS_MOST = 500


def check(patterns: Sequence[str]) -> None:
    """Raise ValueError, naming the pattern, if one of them cannot be used."""
    if len(patterns) > PATTERNS_MOST:
        raise ValueError(f"{len(patterns)} patterns, at most {PATTERNS_MOST} are allowed")
    for pattern in patterns:
        compiled(pattern)


def check_replacement(pattern: str, replacement: str) -> None:
    """Raise ValueError if the replacement asks for a group that the pattern does not have."""
    asked = max((int(digit) for digit in re.findall(r"\\(\d)", replacement)), default=0)
    if asked > compiled(pattern).groups:
        raise ValueError(f"{replacement[:40]!r} names group {asked}, which {pattern[:40]!r} does not have")


@lru_cache(maxsize=1_000)
def compiled(pattern: str) -> Any:
    """Return a pattern compiled; raises ValueError."""
    if len(pattern) > CHARACTERS_MOST:
        raise ValueError(f"the pattern {pattern[:40]!r}... is too long: at most {CHARACTERS_MOST} characters")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        words = error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0]
        raise ValueError(f"{pattern[:80]!r} is no pattern: {words}") from None


def first(named: Iterable[tuple[str, str]], text: str) -> str | None:
    """Return the name of the first pattern that matches anywhere in a text."""
    return next((name for name, pattern in named if compiled(pattern).search(text)), None)


def replaced(aliases: Iterable[tuple[str, str]], text: str) -> str:
    """Return a text with what each pattern matches replaced, one after the other."""
    for pattern, replacement in aliases:
        text = compiled(pattern).sub(replacement, text)
    return text


def chooser(text: str) -> Any:
    """Return a test of names by what somebody typed: `/pattern/`, else a part of the name; raises ValueError."""
    if len(text) > 1 and text.startswith("/") and text.endswith("/"):
        return compiled(text[1:-1]).search
    folded = text.casefold()
    return lambda name: folded in name.casefold()
