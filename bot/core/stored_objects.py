"""Objects of an object store, as exports describe them: their keys, and their content once it is written."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

PART_MOST = 200  # characters of one part of a key, quoted: a file's name may have 255
JSON, TEXT = "application/json", "text/plain"


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A line about an object in a manifest, for those who read many of them."""

    manifest: str  # the folder of its parts; each batch that is written adds one
    line: bytes


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """An object that is to be there, or to be deleted."""

    key: str  # see `object_key`
    content: Callable[[], Iterable[bytes]]  # called where it is written; pieces, not compressed
    content_type: str = JSON
    metadata: Mapping[str, str] = field(default_factory=dict)  # not kept in a directory
    immutable: bool = False  # once it is there, its content never changes
    listed: Listed | None = None


def object_key(*parts: object) -> str:
    """Return a key of these parts, none of which leads out of its place: what may be special in one is quoted."""
    return "/".join(_quoted(str(part)) for part in parts)


def repo_key(repo: str) -> str:
    """Return a repository's full name as two parts of a key."""
    owner, _, name = repo.partition("/")
    return object_key(owner, name)


def _quoted(part: str) -> str:
    quoted = quote(part, safe="")[:PART_MOST]
    return quoted.replace(".", "%2E") or "%00" if not quoted.strip(".") else quoted


def json_line(value: Any) -> bytes:
    """Return a value as a line of JSON; numbers that JSON has not are texts, as upstream's readers know them."""
    return msgspec.json.encode(_with_finite_numbers(value)) + b"\n"


def _with_finite_numbers(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _with_finite_numbers(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_with_finite_numbers(inner) for inner in value]
    return value
