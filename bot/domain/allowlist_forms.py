"""Which keys does each short form of an entry stand for? Every form becomes the full mapping.

    SECTION at L1, L2:  nothing | list of ENTRY
    SECTION at L3, L4:  nothing | list of ENTRY | mapping of DEVICE: BACKEND
    ENTRY:              BACKEND | one-key mapping DEVICE: BACKEND (L3, L4)
    BACKEND:            owner/repo | one-key mapping owner/repo: TERMS | mapping of keys with `repo`
    TERMS:              on-calls | mapping of keys without `repo`

One key decides which form a mapping is: a key of the grammar makes it the full mapping, else a
slash makes it a repository, else it is a device. Devices may not be named like a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from yaml.nodes import MappingNode, ScalarNode, SequenceNode

from bot.domain.allowlist_entry import Level
from bot.domain.allowlist_keys import CHECKED, KEYS, nearest
from bot.domain.allowlist_values import described
from bot.domain.allowlist_yaml import Field, is_empty, pairs, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from yaml.nodes import Node

    from bot.domain.allowlist_keys import Fields
    from bot.domain.allowlist_yaml import Problems


def spelled_out(root: MappingNode, problems: Problems) -> Iterator[tuple[Level, Fields]]:
    """Yield every entry with its level as the full mapping it stands for, in the file's order."""
    for name, field in pairs(root, problems).items():
        if name in Level.__members__:
            level = Level[name]
            for fields in _section(field.value, level, problems):
                yield level, fields
        else:
            guess = nearest(name, Level.__members__)
            hint = f"did you mean `{guess}`?" if guess else "the levels are L1, L2, L3 and L4"
            problems.add(field.at, f"{shown(name)} is no level: {hint}")


def _section(section: Node, level: Level, problems: Problems) -> Iterator[Fields]:
    found: list[Fields | None] = []
    if isinstance(section, SequenceNode):
        found = [_entry(item, level, problems) for item in section.value]
    elif isinstance(section, MappingNode) and level in CHECKED:
        devices = pairs(section, problems)
        found = [_of_section(name, devices[name], level, problems) for name in devices]
    elif not is_empty(section):
        allowed = "a list or a mapping by device" if level in CHECKED else "a list"
        problems.add(section, f"{level.name} has to be {allowed}: write `- owner/repo` below it")
    yield from (fields for fields in found if fields is not None)


def _of_section(name: str, field: Field, level: Level, problems: Problems) -> Fields | None:
    if name.casefold() in KEYS:
        fix = f"begin the entry with `- ` to make {level.name} a list"
        problems.add(field.at, f"{shown(name)} stands where a device is expected: {fix}")
        return None
    if "/" in name:
        fix = "write it below `- `, or put its device's name above it"
        problems.add(field.at, f"{shown(name)} stands where a device is expected: {fix}")
        return None
    return _by_device(field, problems)


def _entry(node: Node, level: Level, problems: Problems) -> Fields | None:
    if not isinstance(node, MappingNode):
        return _word(node, problems)
    keys = pairs(node, problems)
    only = next(iter(keys.values())) if len(keys) == 1 else None
    if only is None or level not in CHECKED or _says_repository(keys):
        return _mapping(node, keys, problems)
    return _by_device(only, problems)


def _by_device(device: Field, problems: Problems) -> Fields | None:
    if is_empty(device.value) or isinstance(device.value, SequenceNode):
        fix = "write its `owner/repo` after the colon; a device belongs to one backend"
        problems.add(device.at, f"{described(device.at)} has to name one repository: {fix}")
        return None
    fields = _backend(device.value, problems)
    if fields is None:
        return None
    stated = fields.get("device")
    if stated is not None and described(stated.value) != described(device.at):
        outer, inner = described(device.at), described(stated.value)
        problems.add(stated.at, f"the device is {inner} here and {outer} above: keep one of the two")
    return {**fields, "device": Field(device.at, device.at)}


def _backend(node: Node, problems: Problems) -> Fields | None:
    if isinstance(node, MappingNode):
        return _mapping(node, pairs(node, problems), problems)
    return _word(node, problems)


def _word(node: Node, problems: Problems) -> Fields | None:
    if isinstance(node, ScalarNode) and not is_empty(node):
        return {"repo": Field(node, node)}
    found = "nothing" if is_empty(node) else described(node)
    problems.add(node, f"{found} stands where an entry is expected: write `owner/repo`")
    return None


def _mapping(node: MappingNode, keys: Fields, problems: Problems) -> Fields | None:
    if any(name.casefold() in KEYS for name in keys):
        return _full(keys, problems)
    if len(keys) == 1:
        (name, field), *_ = keys.items()
        if "/" in name:
            return _by_repository(field, problems)
        problems.add(field.at, f"{shown(name)} is not a repository: write `owner/repo`")
        return None
    found = " and ".join(map(shown, [*keys][:3])) or "an empty mapping"
    problems.add(node, f"{found} cannot be one entry: begin each repository with its own `- `")
    return None


def _full(keys: Fields, problems: Problems) -> Fields:
    fields: Fields = {}
    for name, field in keys.items():
        if "/" in name:
            fix = "indent the other keys below it, or put `repo: ` before it"
            problems.add(field.at, f"{shown(name)} stands beside keys of an entry: {fix}")
            fields.setdefault("repo", Field(field.at, field.at))
        else:
            fields[name] = field
    return fields


def _by_repository(repo: Field, problems: Problems) -> Fields:
    named: Fields = {"repo": Field(repo.at, repo.at)}
    if not isinstance(repo.value, MappingNode):
        return {**named, "oncalls": Field(repo.at, repo.value)}
    terms = pairs(repo.value, problems)
    if "repo" in terms:
        problems.add(terms["repo"].at, f"{described(repo.at)} is named already: remove this `repo`")
    return {**terms, **named}


def _says_repository(keys: Fields) -> bool:
    return any("/" in name or name.casefold() in KEYS for name in keys)
