"""Days of a report as periods, and the weeks and days whose sums make up each."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import NamedTuple

from bot.ci.utilization.sums import first_day

GRANULARITIES = ("day", "week", "month", "all")
SECONDS = 86_400


class Period(NamedTuple):
    """Some days, counted since 1970, both ends included."""

    first: int
    last: int


class Piece(NamedTuple):
    """A week or a day of which there is a sum."""

    span: int
    day: int


def periods(first: int, last: int, granularity: str) -> list[Period]:
    """Return the periods of a window, the oldest first; those at its edges are as long as they are inside."""
    if granularity == "all":
        return [Period(first, last)]
    found: list[Period] = []
    start = first
    while start <= last:
        end = min(_end(start, granularity), last)
        found.append(Period(start, end))
        start = end + 1
    return found


def pieces(period: Period) -> list[Piece]:
    """Return what a period is made of: whole weeks where there are any, else days."""
    found, day = [], period.first
    while day <= period.last:
        whole = first_day(day, 7) == day and day + 6 <= period.last
        found.append(Piece(7 if whole else 1, day))
        day += 7 if whole else 1
    return found


def iso(day: int) -> str:
    """Return a day as a date."""
    return f"{date_of(day)}"


def date_of(day: int) -> date:
    """Return the date of a day."""
    return datetime.fromtimestamp(day * SECONDS, UTC).date()


def day_of(text: str) -> int | None:
    """Return the day of a date or time as ISO writes it, UTC; None where it is neither."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    at = found.replace(tzinfo=UTC) if found.tzinfo is None else found
    return int(at.timestamp() // SECONDS)


def _end(start: int, granularity: str) -> int:
    if granularity == "day":
        return start
    if granularity == "week":
        return first_day(start, 7) + 6
    found = date_of(start)
    following = date(found.year + found.month // 12, found.month % 12 + 1, 1)
    return start + (following - found).days - 1
