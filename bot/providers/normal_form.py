"""Reading what providers send, field by field, into records: whatever it really contains."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from bot.core import escaping
from bot.core.json_fields import Kind, Unreadable, as_commit, as_time, read_member
from bot.ingest.records import Record, version_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.ingest.records import RecordType

ID_MOST, NAME_MOST, WORD_MOST = 200, 500, 60  # characters
ATTEMPTS_MOST = 1_000_000
PULL = re.compile(r"pull/([1-9][0-9]{0,9})(?:/head|/merge)?")
UTC = " UTC"  # ends Buildkite's older form of a time: 2026-01-31 12:00:00 UTC
Json = dict[str, Any]


def read_text(data: object, *path: str, most: int = NAME_MOST) -> str | None:
    """Return a text, shortened; None where there is none, or an empty one."""
    found = read_member(data, path, Kind.TEXT)
    return found[:most] if found else None


def read_number(data: object, *path: str) -> int | None:
    """Return a whole number, also of digits in a text."""
    found = read_member(data, path, Kind.INT)
    text = read_member(data, path, Kind.TEXT) or ""
    return int(text) if found is None and text.isascii() and text.isdigit() and len(text) < 16 else found


def read_time(data: object, *path: str) -> int | None:
    """Return a time in epoch milliseconds."""
    text = read_member(data, path, Kind.TEXT)
    return as_time(text.removesuffix(UTC)) if text else None


def read_flag(data: object, *path: str) -> bool | None:
    """Return whether something holds, None where that is not said."""
    found: bool | None = read_member(data, path, Kind.BOOL)
    return found


def read_commit(data: object, *path: str) -> str | None:
    """Return the full SHA of a commit, None for a name such as HEAD."""
    return as_commit(read_member(data, path, Kind.TEXT))


def read_url(data: object, *path: str) -> str | None:
    """Return a link, None where it is none that is safe."""
    return escaping.url(read_member(data, path, Kind.TEXT))


def read_id(data: object, *path: str) -> str:
    """Return what identifies something; raises Unreadable without it."""
    found = read_text(data, *path, most=ID_MOST)
    if found is None:
        raise Unreadable(f"{'.'.join(path)} is missing or no text")
    return found


def number_of_pull(branch: str | None) -> int | None:
    """Return the pull request that a branch is named after, as CircleCI does."""
    found = PULL.fullmatch(branch or "")
    return int(found[1]) if found else None


def make_record(kind: RecordType[Any], values: Mapping[str, Any]) -> Record:
    """Return the record of what a delivery says: columns that it does not name are null.

    Of two that are as far, the SHA-256 of what is read decides; a body is many times as long.
    """
    whole = dict.fromkeys(kind.names) | dict(values) | {"deleted_at": None}
    told = {name: value for name, value in values.items() if name != "received_at"}
    version = version_of(kind, told, whole, None)
    return Record(type=kind, values=whole, version=version, guid=str(whole["delivery_guid"]))
