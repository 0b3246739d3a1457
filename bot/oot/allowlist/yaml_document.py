"""The allowlist's text as YAML nodes, and the problems found in it.

Nothing is converted by YAML: `on`, `1:30` and `010` stay the words they are. Anchors, aliases and tags are refused,
size and nesting are limited.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from yaml.events import AliasEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_BYTES = 1024 * 1024
MAX_NODES = 20_000
MAX_DEPTH = 12

_WRITE_OUT = "is not accepted: write the value itself"

# Besides control characters: the line breaks only YAML 1.1 knows, which would shift line numbers.
_UNREADABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and how to put it right."""

    line: int  # counted from 1
    message: str  # one line; words taken from the file are escaped

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


class AllowlistError(ValueError):
    """The text is no allowlist; `problems` holds all that is wrong with it, ordered by line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line))
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        super().__init__(f"{self.problems[0]}{more}")


class Problems:
    """Collects what is wrong, so that one reading of the file names everything."""

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def add(self, where: Node | int, message: str) -> None:
        """Remember `message` for the line of a node, or for a line by its number."""
        self._found.append(Problem(where if isinstance(where, int) else line_of(where), message))

    def raise_if_any(self) -> None:
        """Raise AllowlistError with everything remembered, if there is anything."""
        if self._found:
            raise AllowlistError(self._found)


class Field(NamedTuple):
    """A value and the node that names it; in short forms one node may be both."""

    at: Node
    value: Node


def compose(text: str | bytes) -> Node | None:
    """Return the root node, None for a text without one; AllowlistError if it is unusable YAML."""
    problems = Problems()
    words = _decoded(text, problems)
    problems.raise_if_any()
    loader = _Loader(words, problems)
    root: Node | None = None
    try:
        root = loader.get_single_node()
    except AllowlistError:
        raise  # a bound was reached; it is a ValueError too, but already explained
    except yaml.MarkedYAMLError as error:
        problems.add(*_explained(error, words))
    except (ValueError, OverflowError):
        # PyYAML converts escapes such as "\U99999999" and %YAML versions without checking them.
        problems.add(loader.line + 1, "not valid YAML: a number here is out of range")
    finally:
        loader.dispose()
    problems.raise_if_any()
    return root


def line_of(node: Node) -> int:
    """Return the line on which the node starts, counted from 1."""
    return int(node.start_mark.line) + 1


def is_empty(node: Node) -> bool:
    """Whether nothing was written (or an unquoted null), as after `L1:`."""
    plain = isinstance(node, ScalarNode) and node.style is None
    return plain and node.value in {"", "~", "null", "Null", "NULL"}


def shown(text: str) -> str:
    """Return a word of the file for use in a message: quoted, on one line, inert, not too long."""
    cut = text if len(text) <= 60 else f"{text[:60]}..."
    return f"`{cut.encode('unicode_escape').decode()}`"


def described(node: Node) -> str:
    """Return what a message calls this value."""
    if isinstance(node, ScalarNode):
        return shown(node.value)
    return "a list" if isinstance(node, SequenceNode) else "a mapping"


def pairs(node: MappingNode, problems: Problems) -> dict[str, Field]:
    """Return a mapping's fields by name; keys that are no words or come twice are problems."""
    fields: dict[str, Field] = {}
    for at, value in node.value:
        if not isinstance(at, ScalarNode):
            problems.add(at, "a key must be a word, not a list or a mapping: write `key: value`")
        elif at.value in fields:
            first = line_of(fields[at.value].at)
            problems.add(at, f"{shown(at.value)} is already on line {first}: keep one of the two")
        else:
            fields[at.value] = Field(at, value)
    return fields


class _Loader(yaml.SafeLoader):
    """Composes nodes, and refuses what would make them more than what is written."""

    def __init__(self, text: str, problems: Problems) -> None:
        super().__init__(text)
        self._problems = problems
        self._nodes = 0
        self._depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call] # so in the stubs
        line = event.start_mark.line + 1
        self._bound(line)
        if event.anchor is not None:
            mark = "*" if isinstance(event, AliasEvent) else "&"
            self._problems.add(line, f"{shown(mark + event.anchor)} {_WRITE_OUT}")
        if getattr(event, "tag", None) is not None:
            self._problems.add(line, f"the tag {shown(event.tag)} {_WRITE_OUT}")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def _bound(self, line: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self._problems.add(line, f"more than {MAX_NODES} words and lists: shorten the file")
            self._problems.raise_if_any()
        if self._depth >= MAX_DEPTH:
            self._problems.add(line, f"more than {MAX_DEPTH} levels deep: write entries flatter")
            self._problems.raise_if_any()


def _decoded(text: str | bytes, problems: Problems) -> str:
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(data) > MAX_BYTES:
        problems.add(1, f"{len(data)} bytes, more than {MAX_BYTES}: shorten the file")
        return ""
    try:
        words = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problems.add(line, "a byte here is not UTF-8: save the file as UTF-8")
        return ""
    words = words.replace("\r\n", "\n").replace("\r", "\n")
    for found in _UNREADABLE.finditer(words):
        line = words.count("\n", 0, found.start()) + 1
        problems.add(line, f"the invisible character U+{ord(found[0]):04X}: remove it")
    return words


def _explained(error: yaml.MarkedYAMLError, words: str) -> tuple[int, str]:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return 1, f"not valid YAML: {error.problem}"
    hints = {
        "@": "; leave the @ out or put the word in quotes",
        "`": "; put the word in quotes",
        "\t": "; indent with spaces",
    }
    hint = hints.get(words[mark.index : mark.index + 1], "")
    problem = " ".join(str(error.problem).split())
    return mark.line + 1, f"not valid YAML at column {mark.column + 1}: {problem}{hint}"
