"""Patterns over the names of jobs: bounded, under RE2, so that no name and no pattern costs more than its length."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import re2

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.ci.trunk.settings import TrunkSettings
    from bot.ci.trunk.tables import ColumnRow

PATTERNS_MOST = 200
CHARACTERS_MOST = 500
NAMES_MOST, NAME_MOST = 10_000, 200  # names whose place on the grid is remembered, and characters of each
TYPED_BYTES, TYPED_STEPS = 256 * 1024, 2_000  # of a pattern that a reader typed: what RE2 may use for it


def check_patterns(patterns: Sequence[str]) -> None:
    """Raise ValueError, naming the pattern, if one of them cannot be used."""
    check_count(len(patterns))
    for pattern in patterns:
        compile_pattern(pattern)


def check_count(patterns: int) -> None:
    """Raise ValueError if there are too many patterns."""
    if patterns > PATTERNS_MOST:
        raise ValueError(f"{patterns} patterns, at most {PATTERNS_MOST} are allowed")


def check_replacement(pattern: str, replacement: str) -> None:
    """Raise ValueError if the replacement asks for a group that the pattern does not have."""
    asked = max((int(digit) for digit in re.findall(r"\\(\d)", replacement)), default=0)
    if asked > compile_pattern(pattern).groups:
        raise ValueError(f"{replacement[:40]!r} names group {asked}, which {pattern[:40]!r} does not have")


@lru_cache(maxsize=1_000)
def compile_pattern(pattern: str) -> Any:
    """Return a pattern of the settings compiled; raises ValueError."""
    return _compile(pattern, re2.Options())


def compile_typed(pattern: str) -> Any:
    """Return a pattern compiled that a reader typed; raises ValueError, also where it needs much memory.

    Nothing keeps it: strangers may type as many as they like.
    """
    options = re2.Options()
    options.max_mem = TYPED_BYTES
    try:
        found = _compile(pattern, options)
    finally:
        re2.purge()  # the library keeps what it compiles, too
    if found.programsize > TYPED_STEPS:
        raise ValueError(f"{pattern[:80]!r} is no pattern: too large")
    return found


def _compile(pattern: str, options: Any) -> Any:
    if len(pattern) > CHARACTERS_MOST:
        raise ValueError(f"the pattern {pattern[:40]!r}... is too long: at most {CHARACTERS_MOST} characters")
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        words = error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0]
        raise ValueError(f"{pattern[:80]!r} is no pattern: {words}") from None


def first_match(named: tuple[tuple[str, str], ...], text: str) -> str | None:
    """Return the name of the first pattern that matches anywhere in a text."""
    return (_first_match if len(text) <= NAME_MOST else _first_match.__wrapped__)(named, text)


@lru_cache(maxsize=NAMES_MOST)
def _first_match(named: tuple[tuple[str, str], ...], text: str) -> str | None:
    return next((name for name, pattern in named if compile_pattern(pattern).search(text)), None)


def replace_names(aliases: Iterable[tuple[str, str]], text: str) -> str:
    """Return a text with what each pattern matches replaced, one after the other."""
    for pattern, replacement in aliases:
        text = compile_pattern(pattern).sub(replacement, text)
    return text


def column_name(column: ColumnRow, settings: TrunkSettings) -> str | None:
    """Return the name of a stored column on the grid, None where it is left out."""
    workflow, job = column["workflow"], column["job"]
    return shown_name(workflow, f"{workflow} / {job}" if workflow else job, settings)


def shown_name(workflow: str, name: str, settings: TrunkSettings) -> str | None:
    """Return the name of a column on the grid, None where it is left out; `name` begins with the workflow's."""
    known = len(workflow) + len(name) <= NAME_MOST
    return (_shown if known else _shown.__wrapped__)(workflow, name, settings.ci_hide, settings.ci_aliases)


@lru_cache(maxsize=NAMES_MOST)
def _shown(
    workflow: str, name: str, hide: tuple[str, ...], aliases: tuple[tuple[str, str], ...]
) -> str | None:
    parts = (workflow.casefold(), name.removeprefix(f"{workflow} / ").casefold())
    if any(fnmatchcase(part, glob.casefold()) for glob in hide for part in parts):
        return None
    return replace_names(aliases, name)


def join_columns(columns: Mapping[int, ColumnRow], settings: TrunkSettings) -> dict[int, int]:
    """Return the column that stands for another one of the same name, as where an alias joins them."""
    first: dict[str, int] = {}
    found = {}
    for key in sorted(columns):
        name = column_name(columns[key], settings)
        if name is not None and (known := first.setdefault(name, key)) != key:
            found[key] = known
    return found


def name_test(text: str) -> Any:
    """Return a test of names by what was typed: `/pattern/`, else a part of the name; raises ValueError."""
    if len(text) > 1 and text.startswith("/") and text.endswith("/"):
        return compile_typed(text[1:-1]).search
    folded = text.casefold()
    return lambda name: folded in name.casefold()
