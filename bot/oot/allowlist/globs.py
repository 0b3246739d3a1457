"""Globs over the paths of changed files, in the notation of .gitignore: the last one that matches a path decides."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import re2
from pathspec import PathSpec
from pathspec.patterns.gitignore import GitIgnorePatternError
from pathspec.patterns.gitignore.basic import GitIgnoreBasicPattern

from bot.oot.allowlist.yaml_document import shown
from bot.oot.allowlist.yaml_values import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yaml.nodes import Node

    from bot.oot.allowlist.yaml_document import Problems

MOST_GLOBS = 200
LONGEST_GLOB = 255
_WRITABLE = re.compile(rf"[^\x00-\x1f\x7f]{{1,{LONGEST_GLOB}}}")

_NESTED_SET = re.compile(
    r"\[[^]]*(\[|--|&&|\|\||~~)"
)  # means one thing to git and another to regular expressions


def read_globs(node: Node, problems: Problems) -> tuple[str, ...] | None:
    """Read globs, at most MOST_GLOBS; each that is wrong is a problem of its own line."""
    found = words(node, problems)
    if not found:
        problems.add(node, "the list is empty: name at least one glob, or leave the key out")
        return None
    wrong = [(at, why) for at, word in found if (why := _problem(word))]
    if found[0][1].startswith("!"):
        wrong.append((found[0][0], "the first glob takes away from nothing: write `**` before it"))
    if len(found) > MOST_GLOBS:
        wrong.append(
            (found[MOST_GLOBS][0], f"more than {MOST_GLOBS} globs: write shorter ones for more files")
        )
    for at, why in wrong:
        problems.add(at, why)
    return None if wrong else tuple(word for _, word in found)


def _problem(glob: str) -> str | None:
    """Return what is wrong with a glob."""
    if not _WRITABLE.fullmatch(glob) or glob != glob.strip():
        why = f"is no glob: write up to {LONGEST_GLOB} characters of a path, as in `src/**`"
    elif glob.startswith("#"):
        why = "is a comment in this notation: write `\\#` for a path that begins so"
    elif glob.startswith(("./", "../", "!./", "!../")):
        why = "matches no file: write the path from the top of the repository, as in `src/**`"
    elif "{" in glob:
        why = "has braces, which are no alternatives in this notation: write one glob for each"
    elif not _can_be_compiled(glob):
        why = "is no glob: write a path with * ? [] ** as wildcards"
    else:
        return None
    return f"{shown(glob)} {why}"


def _can_be_compiled(glob: str) -> bool:
    if glob in {"/", "!", "!/"} or "//" in glob or _NESTED_SET.search(glob):
        return False
    try:
        compile_globs((glob,))
    except (GitIgnorePatternError, re.error, re2.error):
        return False
    return True


@lru_cache(maxsize=256)  # pure: the same globs are the same matcher, for all backends that share them
def compile_globs(globs: tuple[str, ...]) -> PathSpec[GitIgnoreBasicPattern]:
    """Return what matches paths: in time linear in a path's length, as paths are chosen by anyone."""
    return PathSpec.from_lines(GitIgnoreBasicPattern, globs, backend="re2")


def find_match(globs: tuple[str, ...], paths: Sequence[str]) -> tuple[str, str] | None:
    """Return the first path that the globs choose and the glob that decides on it; None where they choose none."""
    matcher = compile_globs(globs)
    for path in paths:
        result = matcher.check_file(path)
        if result.include and result.index is not None:
            return path, globs[result.index]
    return None
