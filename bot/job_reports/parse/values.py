"""What the parsers of small documents return, and checks of the values in it."""

from __future__ import annotations

import math
import re
from typing import Any, Generic, TypeVar

import msgspec

from bot.core.json_fields import clean

R = TypeVar("R")
PROBLEMS_MOST = 20  # kept; all are counted
NAME = re.compile(r"[a-z0-9_.-]{1,80}")
Scalar = float | int | str | bool | None
TEXT_MOST = 256
RAW_MOST = 16 * 1024  # bytes of what is kept of a document beside its known fields
NUMBER_MOST = 1e300  # sums of some of these are still finite
ELLIPSIS = "…"


class Problem(msgspec.Struct, frozen=True):
    """Something that was skipped."""

    member: str
    line: int  # 0: the whole member
    reason: str


class Parsed(msgspec.Struct, Generic[R], kw_only=True):
    """What a parser returns: rows, and what was skipped."""

    rows: list[R]
    problems: list[Problem]  # the first of them
    problem_count: int


class MetricLine(msgspec.Struct, kw_only=True):
    """One emitted metric."""

    metric: str
    ts: int | None  # milliseconds, as the script says
    values: dict[str, Scalar]
    labels: dict[str, str]
    source: str  # file and function


class CacheStats(msgspec.Struct, kw_only=True):
    """What the documents of one tool say, added up."""

    tool: str  # sccache | ccache
    version: str = ""
    requests: int = 0
    executed: int = 0
    hits: dict[str, int] = msgspec.field(default_factory=dict)  # by language
    misses: dict[str, int] = msgspec.field(default_factory=dict)
    errors: int = 0
    not_cacheable: int = 0
    reasons: dict[str, int] = msgspec.field(default_factory=dict)  # why not
    write_seconds: float = 0.0
    read_seconds: float = 0.0
    documents: int = 0
    raw: dict[str, Any] | None = None  # the last document


class BenchmarkRecord(msgspec.Struct, kw_only=True):
    """The values of a metric in one run."""

    benchmark: str
    mode: str
    dtype: str
    model: str
    backend: str
    metric: str
    device: str
    arch: str
    n: int
    median: float | None  # null: there is only a status
    min: float | None
    max: float | None
    stdev: float | None
    target: float | None
    status: str  # such as pass, of metrics that are words
    extra: dict[str, Any] | None


class SkippedValue(Exception):
    """A row cannot be used; the message says why."""


def as_object(value: Any, called: str) -> dict[str, Any]:
    """Return a JSON object; raises SkippedValue."""
    if not isinstance(value, dict):
        raise SkippedValue(f"{called} is no object")
    return value


def as_number(value: Any, called: str) -> float:
    """Return a finite number; raises SkippedValue."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SkippedValue(f"{called} is no number")
    if not math.isfinite(value) or abs(value) > NUMBER_MOST:
        raise SkippedValue(f"{called} is not finite")
    return value


def as_count(value: Any, called: str) -> int:
    """Return a whole number from 0; raises SkippedValue."""
    number = as_number(value, called)
    if number < 0 or number != int(number) or number >= 2**53:
        raise SkippedValue(f"{called} is no count")
    return int(number)


def as_name(value: Any, called: str) -> str:
    """Return a name of lower-case letters, digits, `_`, `.` and `-`; raises SkippedValue."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise SkippedValue(f"{called} is not of 1 to 80 characters a-z 0-9 _ . -")
    return value


def as_text(value: Any, called: str, *, most: int = TEXT_MOST) -> str:
    """Return a text of limited size; the empty text for none; raises SkippedValue."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise SkippedValue(f"{called} is no text")
    return cut(clean(value), most)


def cut(text: str, most: int) -> str:
    """Cut a text to so many bytes, the last of them an ellipsis."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= most:
        return text
    return encoded[: most - len(ELLIPSIS.encode())].decode("utf-8", "ignore") + ELLIPSIS


def keep_raw(value: dict[str, Any], most: int = RAW_MOST) -> dict[str, Any] | None:
    """Return a document that may be kept, None if it is too large or cannot be stored."""
    encoded = msgspec.json.encode(value)
    if len(encoded) > most or b"\\u0000" in encoded:
        return None
    return value
