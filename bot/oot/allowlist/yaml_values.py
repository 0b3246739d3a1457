"""Readers of the allowlist's values: from a YAML node to a value or to a problem.

A reader decides what a word has to be. It returns None once it has added a problem: the file is refused then, so
it is never used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from yaml.nodes import Node, ScalarNode, SequenceNode

from bot.core.setting_types import duration
from bot.oot.allowlist.yaml_document import Problems, described, is_empty, shown

Reader = Callable[[Node, Problems], Any]

# docs/allowlist.schema.json holds the same patterns, so they use only what both dialects know.
REPO = (
    "(?=[^/]{1,39}/)[A-Za-z0-9]+(-[A-Za-z0-9]+)*"  # owner: no hyphen first, last or twice
    r"/(?!\.{1,2}$)(?!.*\.git$)[A-Za-z0-9._-]{1,100}"
)
LOGIN = "@?(?=[^@]{1,39}$)[A-Za-z0-9]+([-_][A-Za-z0-9]+)*"  # _ in logins an enterprise manages
DEVICE_WORD = "[A-Za-z][A-Za-z0-9]{0,49}"
DEVICE = "[A-Za-z0-9][A-Za-z0-9._-]{0,49}"
WORKFLOW_FILE = r"[A-Za-z0-9._-]{1,100}\.ya?ml"
REF = r"[^\s\x00-\x1f\x7f~^:\\]{1,255}"

MAX_TIMEOUT = 35 * 86_400  # a callback token's life: later reports are refused whatever we wait


def matching(pattern: str, wanted: str) -> Reader:
    """Make a reader of one word that has to match all of `pattern`; `wanted` says it for people."""

    def read(node: Node, problems: Problems) -> str | None:
        if isinstance(node, ScalarNode) and re.fullmatch(pattern, node.value):
            return str(node.value)
        problems.add(node, f"{described(node)} is not {wanted}")
        return None

    return read


def choice(choices: tuple[str, ...]) -> Reader:
    """Make a reader of one word out of `choices`."""
    return matching("|".join(choices), f"allowed here: write {' or '.join(choices)}")


def choices(allowed: tuple[str, ...]) -> Reader:
    """Make a reader of one or more words out of `allowed`, as a set."""

    def read(node: Node, problems: Problems) -> frozenset[str] | None:
        found = words(node, problems)
        for at, word in found:
            if word not in allowed:
                wanted = " or ".join(allowed)
                problems.add(at, f"{shown(word)} is not allowed here: write {wanted}")
        _refuse_none(node, found, problems)
        read = frozenset(word for _, word in found)
        return read if read and read <= frozenset(allowed) else None

    return read


def number(most: int) -> Reader:
    """Make a reader of a whole number from 1 to `most`; quoted, signed or octal is none."""

    def read(node: Node, problems: Problems) -> int | None:
        digits = _plain(node)
        if re.fullmatch("[1-9][0-9]{0,18}", digits) and int(digits) <= most:
            return int(digits)
        wanted = f"a whole number from 1 to {most}: write plain digits without quotes"
        problems.add(node, f"{described(node)} is not {wanted}")
        return None

    return read


def truth(node: Node, problems: Problems) -> bool | None:
    """Read true or false; `yes`, `on` and quoted words mean different things to other tools."""
    word = _plain(node)
    if word in {"true", "True", "TRUE", "false", "False", "FALSE"}:
        return word.casefold() == "true"
    problems.add(node, f"{described(node)} is not true or false: write one of them, unquoted")
    return None


def timeout(node: Node, problems: Problems) -> int | None:
    """Read a duration of at most 35 days as seconds."""
    if not isinstance(node, ScalarNode):
        problems.add(node, f"{described(node)} is not a duration: write one, such as `6h`")
        return None
    try:
        seconds = duration(node.value)
    except ValueError as error:
        problems.add(node, str(error))
        return None
    if seconds > MAX_TIMEOUT:
        problems.add(node, f"{shown(node.value)} is too long: write at most `35d`")
        return None
    return seconds


def logins(node: Node, problems: Problems) -> tuple[str, ...]:
    """Read GitHub logins, with or without @, each once and in the order written."""
    found: dict[str, str] = {}
    for at, word in words(node, problems):
        if re.fullmatch(LOGIN, word):
            login = word.removeprefix("@")
            found.setdefault(login.casefold(), login)
        else:
            problems.add(at, f"{shown(word)} is not a login: name people (not teams) as in `alice`")
    return tuple(found.values())


def refs(node: Node, problems: Problems) -> tuple[str, ...]:
    """Read patterns of branch names or full refs."""
    found = words(node, problems)
    for at, word in found:
        if not re.fullmatch(REF, word):
            wanted = "write a branch name or a full ref, with * ? [] as wildcards"
            problems.add(at, f"{shown(word)} is no pattern of refs: {wanted}")
    _refuse_none(node, found, problems)
    return tuple(word for _, word in found)


def device_words(node: Node, problems: Problems) -> tuple[str, ...]:
    """Read words that name a device, in lower case."""
    found = words(node, problems)
    for at, word in found:
        if not re.fullmatch(DEVICE_WORD, word):
            wanted = "use up to 50 of A-Z a-z 0-9, first a letter"
            problems.add(at, f"{shown(word)} is no word in the name of a test: {wanted}")
    _refuse_none(node, found, problems)
    return tuple(dict.fromkeys(word.lower() for _, word in found))


def words(node: Node, problems: Problems) -> list[tuple[Node, str]]:
    """Return the words of a list or of one comma separated string, each with its node."""
    if is_empty(node):
        return []
    if isinstance(node, ScalarNode):
        parts = (part.strip() for part in node.value.split(","))
        return [(node, part) for part in parts if part]
    if isinstance(node, SequenceNode):
        return list(_items(node, problems))
    problems.add(node, "a mapping is not a list of words: write `[a, b]` or `a, b`")
    return []


def _items(node: SequenceNode, problems: Problems) -> Iterator[tuple[Node, str]]:
    for item in node.value:
        if isinstance(item, ScalarNode):
            yield item, item.value
        else:
            problems.add(item, f"{described(item)} stands where a word is expected: write a word")


def _refuse_none(node: Node, found: list[tuple[Node, str]], problems: Problems) -> None:
    # An empty list could mean "none" or "no limit"; leaving the key out says what the docs say.
    nothing = isinstance(node, ScalarNode) or (isinstance(node, SequenceNode) and not node.value)
    if nothing and not found:
        problems.add(node, "the list is empty: name at least one, or leave the key out")


def _plain(node: Node) -> str:
    return str(node.value) if isinstance(node, ScalarNode) and node.style is None else ""
