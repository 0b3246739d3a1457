"""Conversions between epoch milliseconds and GitHub's timestamps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import overload


@overload
def iso(ms: int) -> str: ...
@overload
def iso(ms: None) -> None: ...
def iso(ms: int | None) -> str | None:
    """Return epoch milliseconds in GitHub's notation: UTC, whole seconds."""
    if ms is None:
        return None
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_iso(text: str) -> int:
    """Return the epoch milliseconds of an ISO 8601 time with a time zone; ValueError for anything else."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; end it with Z")
    return int(moment.timestamp() * 1000)


def within(ms: int, search: str) -> bool:
    """Whether a time is in a search range such as `>=2024-01-01` or `A..B`."""
    low, dots, high = search.partition("..")
    if dots:
        return _from(low)[0] <= ms <= _from(high, end=True)[1]
    sign = search[: len(search) - len(search.lstrip("<>="))]
    first, last = _from(search[len(sign) :])
    return {
        ">": ms > last,
        ">=": ms >= first,
        "<": ms < first,
        "<=": ms <= last,
        "": first <= ms <= last,
    }[sign]


def _from(text: str, *, end: bool = False) -> tuple[int, int]:
    """Return the first and the last millisecond of a date or of a time to the second."""
    if text == "*":
        return (0, 0) if not end else (2**62, 2**62)
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    length = timedelta(days=1) if len(text) == len("2024-01-01") else timedelta(seconds=1)
    first = int(moment.timestamp() * 1000)
    return first, first + int(length.total_seconds() * 1000) - 1
