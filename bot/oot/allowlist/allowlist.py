"""The allowlist: which backends take part, at which level, on which terms. Text in, value or all errors out."""

from __future__ import annotations

import asyncio
import base64
import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaml.nodes import MappingNode, ScalarNode, SequenceNode

from bot.core.errors import GitHubRefused, OotbotError, in_words
from bot.oot.allowlist.entry import (
    CHECKED,
    DEFAULT_EVENTS,
    ENTRY_KEYS,
    Entry,
    Level,
    meant_events,
    nearest,
    read_entry,
)
from bot.oot.allowlist.yaml_document import (
    MAX_BYTES,
    AllowlistError,
    Field,
    Problems,
    compose,
    describe_value,
    is_empty,
    quote_word,
    read_pairs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from yaml.nodes import Node

    from bot.github.client import GitHubApp
    from bot.oot.allowlist.entry import Fields

BEGIN_EACH = "begin each repository with its own `- `"
ONE_EACH = "at L4 a device belongs to one repository, give each a device of its own"
_UNIQUE = {
    "repo": "the repository",
    "repository_id": "the repository_id",
    "device": "the device",
}
_NAMED = re.compile(r"(?P<repo>[A-Za-z0-9][\w-]*/[\w.-]+):(?P<rest>.+)")


@dataclass(frozen=True, kw_only=True)
class OnGitHub:
    """A file in a repository; `ref` None is its default branch."""

    repo: str
    path: str
    ref: str | None


class NoAllowlistText(OotbotError):
    """There is no text to be checked; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Allowlist:
    """All entries in the order of the file; no repository or id comes twice, a device only at L3."""

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


def parse_allowlist(text: str | bytes, default_events: frozenset[str] = DEFAULT_EVENTS) -> Allowlist:
    """Read an allowlist file; AllowlistError holds everything that is wrong with it.

    `default_events` are those of entries that name none.
    A file that names no level at all is an error: it would switch every backend off unnoticed.
    """
    problems = Problems()
    root = compose(text)
    backends: list[dict[str, Any]] = []
    if root is None or is_empty(root) or (isinstance(root, MappingNode) and not root.value):
        problems.add(1, "the file is empty: write `L1: []` if nobody is to take part")
    elif isinstance(root, MappingNode):
        backends = [
            read_entry(*entry, problems, default_events) for entry in spell_out_levels(root, problems)
        ]
    else:
        problems.add(root, "the file has to be a mapping: begin with a level, as in `L1:`")
    for key, what in _UNIQUE.items():
        _refuse_duplicates(backends, key, what, problems)
    problems.raise_if_any()
    entries = [_with_defaults(values, default_events) for values in backends]
    devices = Counter(entry.device.casefold() for entry in entries if entry.device)
    shared = {device for device, count in devices.items() if count > 1}
    return Allowlist(
        entries=tuple(
            replace(entry, shares_device=(entry.device or "").casefold() in shared) for entry in entries
        )
    )


def render_errors(error: AllowlistError) -> str:
    """Render all problems for people, one a line, in the order of the file."""
    return "\n".join(map(str, error.problems))


def spell_out_levels(root: MappingNode, problems: Problems) -> Iterator[tuple[Level, Fields]]:
    """Yield every entry with its level as the full mapping it stands for, in the file's order."""
    for name, field in read_pairs(root, problems).items():
        if name in Level.__members__:
            level = Level[name]
            for fields in _section(field.value, level, problems):
                yield level, fields
        else:
            problems.add(field.at, f"{quote_word(name)} is no level: {_instead_of_level(name)}")


def known_accounts(upstreams: Iterable[str], allowlist: Allowlist | None, setting: str) -> set[str]:
    """Return the accounts, case folded, of upstream, of the listed backends and of the allowlist's own repository."""
    repos = [*upstreams, *(entry.repo for entry in (allowlist.entries if allowlist else ()))]
    if source := parse_github_source(setting):
        repos.append(source.repo)
    return {repo.partition("/")[0].casefold() for repo in repos}


def parse_github_source(setting: str) -> OnGitHub | None:
    """Return the file on GitHub a setting names, None when it is a path on disk."""
    named = _NAMED.fullmatch(setting.strip())
    if named is None:
        return None
    path, at, ref = named["rest"].rpartition("@")
    if not at:
        path, ref = ref, ""
    return OnGitHub(repo=named["repo"], path=path.strip("/"), ref=ref or None) if path.strip("/") else None


async def read_source(source: str, app_for: Callable[[str], GitHubApp]) -> str:
    """Return the text of the file a setting names; `app_for` says which App reads a repository.

    Raises NoText, or RetryLater while GitHub cannot be reached.
    """
    where = parse_github_source(source)
    try:
        if where is None:
            return (await asyncio.to_thread(_from_disk, Path(source))).decode()
        return (await _from_github(app_for(where.repo), where)).decode()
    except OSError as problem:
        raise NoAllowlistText(in_words(problem).removeprefix(f"{source}: ")) from problem
    except UnicodeDecodeError as problem:
        raise NoAllowlistText("it is not text in UTF-8") from problem


def _refuse_duplicates(backends: Iterable[dict[str, Any]], key: str, what: str, problems: Problems) -> None:
    first: dict[str, dict[str, Any]] = {}
    for values in backends:
        if values.get(key) is None or "line" not in values:
            continue
        other = first.setdefault(str(values[key]).casefold(), values)
        both_watched = key == "device" and values["level"] is other["level"] is Level.L3
        if other is not values and not both_watched:  # one label may ask for several that never block
            where = f"line {other['line']} ({other['level'].name})"
            name = quote_word(str(values[key]))
            problems.add(values["line"], f"{what} {name} is already on {where}: keep one of the two")


def _with_defaults(values: dict[str, Any], default_events: frozenset[str]) -> Entry:
    level, written = values["level"], values.get("events")
    events = meant_events(written, default_events)
    # an entry that does not speak of pushes and gets them gets every one: to branches and tags, and deletions
    every_push = "push" in events and (written is None or "push" not in written)
    defaults = {
        "refs": ("refs/*",) if every_push else (),
        "deletions": every_push,
        "confirm": level is Level.L4,
        "callback_token": "required" if level >= Level.L3 else "optional",
        "static_key": "refused" if level >= Level.L3 else "allowed",
        "answers": "all" if level is Level.L4 else "some",
        "lists_pushes": not every_push,
    }
    return Entry(**{**defaults, **values, "events": events})


def _instead_of_level(name: str) -> str:
    if level := nearest(name, Level.__members__):
        return f"did you mean `{level}`?"
    if name in ENTRY_KEYS:
        return "it is a key of an entry, write it below the entry's `owner/repo`"
    if key := nearest(name, ENTRY_KEYS):
        return f"did you mean `{key}`, a key of an entry? Write it below the entry's `owner/repo`"
    return "the levels are L1, L2, L3 and L4"


def _section(section: Node, level: Level, problems: Problems) -> Iterator[Fields]:
    if isinstance(section, SequenceNode):
        for item in section.value:
            yield from _list_item(item, level, problems)
    elif isinstance(section, MappingNode) and (level in CHECKED or not section.value):
        devices = read_pairs(section, problems)
        for name in devices:
            yield from _section_item(name, devices[name], level, problems)
    elif not is_empty(section):
        allowed = "a list or a mapping by device" if level in CHECKED else "a list"
        problems.add(section, f"{level.name} has to be {allowed}: write `- owner/repo` below it")


def _section_item(name: str, field: Field, level: Level, problems: Problems) -> list[Fields]:
    fix = ""
    if name.casefold() in ENTRY_KEYS:
        fix = f"begin the entry with `- ` to make {level.name} a list"
    elif "/" in name:
        fix = "put its device's name above it" + (", or write it below `- `" if level is Level.L4 else "")
    elif (key := nearest(name, ENTRY_KEYS)) and not _may_be_backend(field.value):
        fix = f"did you mean `{key}`, indented below the entry's `owner/repo`?"
    if fix:
        problems.add(field.at, f"{quote_word(name)} stands where a device is expected: {fix}")
        return []
    return _by_device(field, level, problems)


def _list_item(node: Node, level: Level, problems: Problems) -> list[Fields]:
    if not isinstance(node, MappingNode):
        return _listed(_word(node, problems))
    keys = read_pairs(node, problems)
    only = next(iter(keys.values())) if len(keys) == 1 else None
    if only is None or level not in CHECKED or _says_repository(keys):
        several = "put their device's name above them" if level is Level.L3 else BEGIN_EACH
        return _listed(_mapping(node, keys, problems, several))
    return _by_device(only, level, problems)


def _listed(fields: Fields | None) -> list[Fields]:
    return [] if fields is None else [fields]


def _by_device(device: Field, level: Level, problems: Problems) -> list[Fields]:
    """Return the backends below a device's name: one, and at L3 any number of repositories, each with its terms."""
    watched = level is Level.L3
    if is_empty(device.value) or isinstance(device.value, SequenceNode):
        fix = "write its `owner/repo` after the colon"
        if isinstance(device.value, SequenceNode):
            fix = "write each as `owner/repo:` below it, without `- `" if watched else ONE_EACH
        problems.add(device.at, f"{describe_value(device.at)} has to name one repository: {fix}")
        return []
    if watched and isinstance(device.value, MappingNode):
        keys = read_pairs(device.value, problems)
        if all("/" in name for name in keys):
            return [_of_device(device, _by_repository(repo, problems), problems) for repo in keys.values()]
    fields = _backend(device.value, problems)
    return [] if fields is None else [_of_device(device, fields, problems)]


def _of_device(device: Field, fields: Fields, problems: Problems) -> Fields:
    stated = fields.get("device")
    if stated is not None and describe_value(stated.value) != describe_value(device.at):
        outer, inner = describe_value(device.at), describe_value(stated.value)
        problems.add(stated.at, f"the device is {inner} here and {outer} above: keep one of the two")
    return {**fields, "device": Field(device.at, device.at)}


def _backend(node: Node, problems: Problems) -> Fields | None:
    if isinstance(node, MappingNode):
        return _mapping(node, read_pairs(node, problems), problems, ONE_EACH)
    return _word(node, problems)


def _word(node: Node, problems: Problems) -> Fields | None:
    if isinstance(node, ScalarNode) and not is_empty(node):
        return {"repo": Field(node, node)}
    written = "nothing" if is_empty(node) else describe_value(node)
    problems.add(node, f"{written} stands where an entry is expected: write `owner/repo`")
    return None


def _mapping(node: MappingNode, keys: Fields, problems: Problems, several: str) -> Fields | None:
    """Return the backend a mapping stands for; `several` says how to write more than one repository."""
    if any(name.casefold() in ENTRY_KEYS for name in keys):
        return _full(keys, problems)
    if len(keys) == 1:
        (name, field), *_ = keys.items()
        if "/" in name:
            return _by_repository(field, problems)
        problems.add(field.at, f"{quote_word(name)} is not a repository: write `owner/repo`")
        return None
    for name, field in keys.items():
        if "/" not in name and (key := nearest(name, ENTRY_KEYS)):
            fix = f"did you mean `{key}`, indented below the repository?"
            problems.add(field.at, f"{quote_word(name)} is no key of an entry: {fix}")
            return None
    wrong = next((field for name, field in keys.items() if "/" not in name), None)
    if wrong is not None:
        problems.add(wrong.at, f"{describe_value(wrong.at)} is not a repository: write `owner/repo`")
        return None
    keys_written = " and ".join(map(quote_word, [*keys][:3])) or "an empty mapping"
    problems.add(node, f"{keys_written} cannot be one entry: {several}")
    return None


def _full(keys: Fields, problems: Problems) -> Fields:
    fields: Fields = {}
    for name, field in keys.items():
        if "/" in name:
            fix = "indent the other keys below it, or put `repo: ` before it"
            problems.add(field.at, f"{quote_word(name)} stands beside keys of an entry: {fix}")
            fields.setdefault("repo", Field(field.at, field.at))
        else:
            fields[name] = field
    return fields


def _by_repository(repo: Field, problems: Problems) -> Fields:
    named: Fields = {"repo": Field(repo.at, repo.at)}
    if not isinstance(repo.value, MappingNode):
        return {**named, "oncalls": Field(repo.at, repo.value)}
    terms = read_pairs(repo.value, problems)
    if "repo" in terms:
        problems.add(terms["repo"].at, f"{describe_value(repo.at)} is named already: remove this `repo`")
    return {**terms, **named}


def _may_be_backend(node: Node) -> bool:
    """Whether this could stand below a device's name: a repository, or a mapping."""
    return isinstance(node, MappingNode) or (isinstance(node, ScalarNode) and "/" in str(node.value))


def _says_repository(keys: Fields) -> bool:
    return any("/" in name or name.casefold() in ENTRY_KEYS for name in keys)


def _from_disk(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise NoAllowlistText(f"{path} is larger than 1 MiB")
    return content


async def _from_github(app: GitHubApp, where: OnGitHub) -> bytes:
    client = app.caching(where.repo, contents="read")
    wanted = {"path": where.path} | ({"ref": where.ref} if where.ref else {})
    try:
        file = await client.getitem(client.path("contents/{+path}{?ref}"), wanted)
    except GitHubRefused as problem:
        raise NoAllowlistText(f"{problem}; the App needs the permission contents: read there") from problem
    if not isinstance(file, dict) or file.get("type") != "file":
        raise NoAllowlistText(f"{where.path} is no file")
    if file.get("encoding") != "base64":
        raise NoAllowlistText(f"{where.path} is larger than 1 MiB")
    return base64.b64decode(file["content"])
