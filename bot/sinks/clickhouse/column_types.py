"""Types of ClickHouse's columns: which hold the same, and how values of JSON become values of a type."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WHOLE, REAL = re.compile(r"U?Int\d+"), re.compile(r"(BFloat|Float|Decimal)\d*")
NAMED = re.compile(r"(?:`([^`]+)`|(\w+))\s+(\S.*)", re.DOTALL)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECONDS_BELOW = 10**11  # a smaller number counts seconds, as some of GitHub's do, not milliseconds
MILLISECONDS = 3  # digits of a second in our own times
FITTING: Mapping[str, frozenset[type]] = {
    "String": frozenset({str}),
    "Float64": frozenset({float}),
    "Bool": frozenset({bool}),
}  # values that are as a type has them


@dataclass(frozen=True)
class Type:
    """A type with its arguments; those of a tuple may have names."""

    name: str
    arguments: tuple[str, ...] = ()

    @property
    def elements(self) -> dict[str, str]:
        """The types of a tuple's elements by name; empty where they have none."""
        named = [NAMED.fullmatch(argument) for argument in self.arguments]
        return {one[1] or one[2]: one[3] for one in named if one} if all(named) else {}


@functools.lru_cache(maxsize=4_000)
def parse_type(text: str) -> Type:
    """Read a type such as `Array(Tuple(name String, number Int64))`."""
    name, bracket, rest = text.strip().partition("(")
    if not bracket:
        return Type(name)
    return Type(name.strip(), tuple(_split(rest.rpartition(")")[0])))


def _split(text: str) -> list[str]:
    found, depth, start, quoted = [], 0, 0, False
    for place, sign in enumerate(text):
        if sign == "'":
            quoted = not quoted
        elif not quoted and sign in "()":
            depth += 1 if sign == "(" else -1
        elif not quoted and sign == "," and depth == 0:
            found.append(text[start:place].strip())
            start = place + 1
    return [one for one in [*found, text[start:].strip()] if one]


def plain(text: str) -> Type:
    """Return a type without Nullable and LowCardinality."""
    found = parse_type(text)
    while found.name in {"Nullable", "LowCardinality"}:
        found = parse_type(found.arguments[0])
    return found


def is_time(text: str) -> bool:
    """Whether values of a type are times."""
    return plain(text).name in {"DateTime", "DateTime64"}


def family_of(text: str) -> str:
    """Return what values of a type are: columns of one family hold the same."""
    found = plain(text)
    if found.name == "Array":
        return f"list of {family_of(found.arguments[0])}"
    if WHOLE.fullmatch(found.name):
        return "whole number"
    if REAL.fullmatch(found.name):
        return "number"
    if found.name in {"String", "FixedString", "Enum8", "Enum16"}:
        return "text"
    return "time" if is_time(text) else found.name.lower()


def convert_column(text: str, values: list[Any]) -> list[Any]:
    """Return values as a type has them; a column of ours mostly is so already, which takes one look to see."""
    if _fitting(text).issuperset(map(type, values)) and not (is_time(text) and _has_seconds(values)):
        return values
    return list(map(converter(text), values))


@functools.lru_cache(maxsize=4_000)
def _fitting(text: str) -> frozenset[type]:
    """Return the types of values that are as a type has them."""
    found = parse_type(text)
    if found.name == "LowCardinality":
        return _fitting(found.arguments[0])
    if found.name == "Nullable":
        inner = _fitting(found.arguments[0])
        return inner | {type(None)} if inner else inner
    if WHOLE.fullmatch(found.name) or (found.name, *found.arguments[:1]) == ("DateTime64", str(MILLISECONDS)):
        return frozenset({int})
    return FITTING.get(found.name, frozenset())


def _has_seconds(values: list[Any]) -> bool:
    return min((value for value in values if value is not None), default=SECONDS_BELOW) < SECONDS_BELOW


@functools.lru_cache(maxsize=4_000)
def converter(text: str) -> Callable[[Any], Any]:
    """Return what makes a value of a type of one of JSON; it raises ValueError or TypeError where none can be made."""
    found = parse_type(text)
    if found.name == "Nullable":
        inner = converter(found.arguments[0])
        return lambda value: None if value is None else inner(value)
    if found.name == "LowCardinality":
        return converter(found.arguments[0])
    if found.name in {"Array", "Tuple", "Map"}:
        return _of_several(found)
    if found.name in {"DateTime", "DateTime64"}:
        digits = int(found.arguments[0]) if found.name == "DateTime64" else 0
        return lambda value: _ticks(value, digits)
    return _days if found.name in {"Date", "Date32"} else _plain(found.name)


def _of_several(found: Type) -> Callable[[Any], Any]:
    if found.name == "Array":
        return _list(converter(found.arguments[0]))
    if found.name == "Map":
        return _map(converter(found.arguments[1]))
    return _tuple({name: converter(kind) for name, kind in found.elements.items()})


def _plain(name: str) -> Callable[[Any], Any]:
    if WHOLE.fullmatch(name):
        return _whole
    if REAL.fullmatch(name):
        return _real
    return bool if name == "Bool" else _text


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return value.decode() if isinstance(value, bytes) else msgspec.json.encode(value).decode()


def _whole(value: Any) -> int:
    return 0 if value is None else value if type(value) is int else int(value)


def _real(value: Any) -> float:
    return 0.0 if value is None else float(value)


def _list(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def convert(value: Any) -> list[Any]:
        if value is not None and not isinstance(value, list | tuple):
            raise TypeError(f"{type(value).__name__} is no list")
        return [inner(one) for one in value or ()]

    return convert


def _tuple(elements: Mapping[str, Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def convert(value: Any) -> dict[str, Any]:
        if value is not None and not isinstance(value, dict):
            raise TypeError(f"{type(value).__name__} is no object")
        known = value or {}
        return {name: inner(known.get(name)) for name, inner in elements.items()}

    return convert


def _map(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: {str(name): inner(one) for name, one in (value or {}).items()}


def _days(value: Any) -> int:
    """Return a date as a number of days: of such a number, or of a text of ISO 8601."""
    if isinstance(value, str):
        return (date.fromisoformat(value) - EPOCH.date()).days
    return _whole(value)


def _ticks(value: Any, digits: int) -> int:
    """Return a time as a number of fractions of a second: of a number, of a text of ISO 8601, of a datetime."""
    if value is None:
        return 0
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
        value = value if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, datetime):
        millis = (value - EPOCH) // timedelta(milliseconds=1)
    else:
        millis = int(value) if value >= SECONDS_BELOW else int(value * 1000)
    if digits >= MILLISECONDS:
        return int(millis * 10 ** (digits - MILLISECONDS))
    return int(millis // 10 ** (MILLISECONDS - digits))
