"""Small texts: counted nouns, shortened lists and commits, percentages, durations, names that match globs."""

from __future__ import annotations

from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

EDGE = 50  # tenths of a percent


def plural(count: int, noun: str) -> str:
    """Return "1 job", "2 jobs"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def listing(words: Sequence[str], *, limit: int = 5) -> str:
    """Return "a, b, c"; beyond `limit` words the rest are only counted."""
    if len(words) <= limit:
        return ", ".join(words)
    return f"{', '.join(words[:limit])} and {len(words) - limit} more"


def short(sha: str) -> str:
    """Return a commit's short SHA."""
    return sha[:7]


def minute(milliseconds: int) -> str:
    """Return a time as "2026-09-21 14:02 UTC"."""
    return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def percent(rate: float | None) -> str:
    """Return a rate in percent to a tenth, as "66.7 %".

    It is not rounded up to a multiple of 5 %, where grades and thresholds lie, and only nothing is 0 %.
    """
    if rate is None:
        return "no data"
    tenths = round(rate * 1000)
    if tenths / 1000 > rate and tenths % EDGE == 0:
        tenths -= 1
    return f"{max(tenths, 1 if rate > 0 else 0) / 10:g} %"


def duration(seconds: float | None) -> str:
    """Return seconds as "45 s", "31 min", "24 h" or "3 d 4 h"; unknown is empty."""
    if seconds is None:
        return ""
    whole = max(0, round(seconds))
    minutes = round(whole / 60)
    if whole < 120:
        return f"{whole} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return _two_units(minutes, 60, "h", "min")
    return _two_units(round(whole / 3600), 24, "d", "h")


def name_matches(folded: str, globs: Iterable[str]) -> bool:
    """Whether one of some globs matches a case folded name."""
    return any(fnmatchcase(folded, glob.casefold()) for glob in globs)


def _two_units(count: int, base: int, big: str, small: str) -> str:
    whole, rest = divmod(count, base)
    return f"{whole} {big} {rest} {small}" if rest else f"{whole} {big}"
