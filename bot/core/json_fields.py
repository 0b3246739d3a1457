"""Fields of JSON from outside, whatever it really contains."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
MAX_INT = 2**63 - 1
NUL = rb"\u0000"  # encoded
LONG = b"0" * len(str(MAX_INT))  # so many digits may be an integer over 64 bits
ONLY_DIGITS = bytes(0x30 if chr(byte).isdigit() and byte < 0x80 else 0x20 for byte in range(256))
LATEST = 253_402_300_799_999  # 9999-12-31, epoch milliseconds
# of a repository, owner and name
FULL_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}/[A-Za-z0-9._-]{1,100}")
_decoder = msgspec.json.Decoder(float_hook=float)


class Unreadable(ValueError):
    """A delivery whose body does not fit its event; it is kept as parked and shown."""


class Kind(StrEnum):
    """The types of stored fields."""

    INT = "int"
    TEXT = "text"
    BOOL = "bool"
    TIME = "time"  # epoch milliseconds
    TEXTS = "texts"  # a list; other items are dropped
    INTS = "ints"
    JSON = "json"


def learn(kind: Any) -> None:
    """Make msgspec learn a type at import, for conversions that run in threads later.

    Where two threads have it look at the same type for the first time at the same moment, the process crashes (msgspec
    0.22). A decoder that a module makes for itself does the same.
    """
    msgspec.json.Decoder(kind)


def decode(body: bytes) -> Any:
    """Decode a webhook's body; a number beyond the range of floats is infinite. Raises Unreadable."""
    try:
        return _decoder.decode(body)
    except RecursionError as error:
        raise Unreadable("the body is nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(f"the body is not JSON: {error}") from error


def read_member(source: Any, path: tuple[str, ...], kind: Kind) -> Any:
    """Return the member at `path` as `kind`, or None; a step `name[]` maps the rest over a list."""
    value = _find(source, path)
    return None if value is None else CASTS[kind](value)


@cache
def member_reader(path: tuple[str, ...], kind: Kind) -> Callable[[Any], Any]:
    """Return a reader of one path and kind: faster, for members that are read from every delivery."""
    cast = CASTS[kind]
    if len(path) > 1 or path[0].endswith("[]"):
        return partial(read_member, path=path, kind=kind)
    name = path[0]

    def member(source: Any) -> Any:
        value = source.get(name) if isinstance(source, dict) else None
        return None if value is None else cast(value)

    return member


def require_int(source: dict[str, Any], name: str, called: str) -> int:
    """Return an integer member; raises Unreadable naming it."""
    value = as_int(source.get(name))
    if value is None:
        raise Unreadable(f"{called} is missing or not a number")
    return value


def clean(text: str) -> str:
    """Return the text without what PostgreSQL and UTF-8 reject: NUL and lone surrogates."""
    if "\x00" in text:
        text = text.replace("\x00", "")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def as_int(value: object) -> int | None:
    """Return a 64-bit integer or None (also for booleans and floats)."""
    if isinstance(value, int) and not isinstance(value, bool) and -MAX_INT <= value <= MAX_INT:
        return value
    return None


def as_text(value: object) -> str | None:
    """Return the text cleaned, or None."""
    return clean(value) if isinstance(value, str) else None


def as_commit(value: object) -> str | None:
    """Return a commit's full SHA in lower case, or None."""
    sha = value.lower() if isinstance(value, str) else ""
    return sha if COMMIT.fullmatch(sha) else None


def as_time(value: object) -> int | None:
    """Return epoch milliseconds of GitHub's ISO 8601 text or epoch seconds, or None."""
    if isinstance(value, int):
        return value * 1000 if 0 <= value * 1000 <= LATEST else None
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    try:
        at = round(aware.timestamp() * 1000)
    except OverflowError:
        return None
    return at if 0 <= at <= LATEST else None


def iso_time(at: int) -> str:
    """Return epoch milliseconds in GitHub's format: to the second with `Z`, a fraction only where there is one."""
    moment = datetime.fromtimestamp(at / 1000, UTC)
    return moment.isoformat(timespec="milliseconds" if at % 1000 else "seconds").replace("+00:00", "Z")


def _as_bool(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _as_json(value: Any) -> Any:
    return value if isinstance(value, dict | list) and _storable(value) else _cleaned(value)


def _list_of(cast: Callable[[object], Any], value: object) -> list[Any] | None:
    if not isinstance(value, list):
        return None
    return [read_item for item in value if (read_item := cast(item)) is not None]


CASTS: dict[Kind, Callable[[Any], Any]] = {
    Kind.INT: as_int,
    Kind.TEXT: as_text,
    Kind.BOOL: _as_bool,
    Kind.TIME: as_time,
    Kind.TEXTS: partial(_list_of, as_text),
    Kind.INTS: partial(_list_of, as_int),
    Kind.JSON: _as_json,
}


def time(at: int | None) -> str | None:
    """Return a time in GitHub's format; unknown stays None."""
    return None if at is None else iso_time(at)


def _storable(value: Any) -> bool:
    """Whether nothing has to be cleaned. All of it is encoded: to visit every member takes ten times as long."""
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return NUL not in encoded and LONG not in encoded.translate(ONLY_DIGITS)


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {clean(str(name)): _cleaned(item) for name, item in value.items()}
    if isinstance(value, int) and not isinstance(value, bool):
        return as_int(value)
    return value


def _find(source: Any, path: tuple[str, ...]) -> Any:
    value = source
    for depth, step in enumerate(path):
        if not isinstance(value, dict):
            return None
        if step.endswith("[]"):
            items, rest = value.get(step[:-2]), path[depth + 1 :]
            return [_find(item, rest) for item in items] if isinstance(items, list) else None
        value = value.get(step)
    return value
