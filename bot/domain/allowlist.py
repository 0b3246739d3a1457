"""Which backends take part, at which level, on which terms? Text in, value or all errors out.

The grammar is written down in docs/allowlist.md; docs/allowlist.schema.json is for editors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from yaml.nodes import MappingNode

from bot.domain.allowlist_entry import Entry, Level
from bot.domain.allowlist_forms import spelled_out
from bot.domain.allowlist_keys import read_entry
from bot.domain.allowlist_yaml import AllowlistError, Problem, Problems, compose, is_empty, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Allowlist",
    "AllowlistError",
    "Entry",
    "Level",
    "Problem",
    "parse",
    "render_errors",
]


@dataclass(frozen=True, kw_only=True)
class Allowlist:
    """All entries in the order of the file; no repository, id or device comes twice."""

    entries: tuple[Entry, ...]

    def find(self, repo: str) -> Entry | None:
        """Return the entry of a repository, whatever the case of `repo`."""
        return self._by_key.get(repo.casefold())

    def at(self, level: int) -> tuple[Entry, ...]:
        """Return the entries of exactly this level."""
        return tuple(entry for entry in self.entries if entry.level == level)

    def for_event(self, event: str, ref: str | None = None) -> tuple[Entry, ...]:
        """Return the entries that take part in `event`; see Entry.wants for `ref`."""
        return tuple(entry for entry in self.entries if entry.wants(event, ref))

    @cached_property
    def _by_key(self) -> dict[str, Entry]:
        return {entry.key: entry for entry in self.entries}


def parse(text: str | bytes) -> Allowlist:
    """Read an allowlist file; AllowlistError holds everything that is wrong with it.

    A file that names no level at all is an error: it would switch every backend off unnoticed.
    """
    problems = Problems()
    root = compose(text)
    found: list[dict[str, Any]] = []
    if root is None or is_empty(root) or (isinstance(root, MappingNode) and not root.value):
        problems.add(1, "the file is empty: write `L1: []` if nobody is to take part")
    elif isinstance(root, MappingNode):
        found = [read_entry(*entry, problems) for entry in spelled_out(root, problems)]
    else:
        problems.add(root, "the file has to be a mapping: begin with a level, as in `L1:`")
    for key, what in _UNIQUE.items():
        _refuse_twins(found, key, what, problems)
    problems.raise_if_any()
    return Allowlist(entries=tuple(_entry(values) for values in found))


def render_errors(error: AllowlistError) -> str:
    """Return all problems for people, one a line, in the order of the file."""
    return "\n".join(map(str, error.problems))


_UNIQUE = {
    "repo": "the repository",
    "repository_id": "the repository_id",
    "device": "the device",
}


def _refuse_twins(found: Iterable[dict[str, Any]], key: str, what: str, problems: Problems) -> None:
    first: dict[str, dict[str, Any]] = {}
    for values in found:
        if values.get(key) is None or "line" not in values:
            continue
        twin = first.setdefault(str(values[key]).casefold(), values)
        if twin is not values:
            where = f"line {twin['line']} ({twin['level'].name})"
            name = shown(str(values[key]))
            problems.add(values["line"], f"{what} {name} is already on {where}: keep one of the two")


def _entry(values: dict[str, Any]) -> Entry:
    level = values["level"]
    defaults = {
        "confirm": level is Level.L4,
        "callback_token": "required" if level >= Level.L3 else "optional",
        "static_key": "refused" if level >= Level.L3 else "allowed",
    }
    return Entry(**{**defaults, **values})
