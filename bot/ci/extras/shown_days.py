"""Days, shares and changes as pages and JSON show them."""

from __future__ import annotations

from datetime import UTC, datetime

NOTHING = "–"  # noqa: RUF001 - a dash stands for no value
SECONDS = 86_400
DECIMALS_FROM, WHOLE_FROM = 100, 1_000  # values from here on are shown with fewer decimals


def iso(day: int) -> str:
    """Return a day as a date."""
    return f"{datetime.fromtimestamp(day * SECONDS, UTC):%Y-%m-%d}"


def labels(first: int, last: int) -> list[str]:
    """Return the dates of days, both ends included."""
    return [iso(day) for day in range(first, last + 1)]


def share(value: float | None) -> str:
    """Return a share in percent, such as 94 %."""
    return NOTHING if value is None else f"{value * 100:.0f}\N{NO-BREAK SPACE}%"


def number(value: float | None) -> str:
    """Return a number that people can read: as many digits as say something.

    >>> [number(one) for one in (0.01234, 12.5, 8430, 3086359081.0, 0)]
    ['0.01234', '12.5', '8,430', '3,086,359,081', '0']
    """
    if value is None:
        return NOTHING
    size = abs(value)
    if size >= WHOLE_FROM or value == int(value):
        return f"{value:,.0f}" if size < 1e15 else f"{value:.4g}"
    return f"{value:,.1f}" if size >= DECIMALS_FROM else f"{value:.4g}"


def change(by: float | None) -> str:
    """Return a relative change with its sign, such as +1.1 %."""
    if by is None:
        return NOTHING
    percent = abs(by) * 100
    digits = 1 if percent < 10 else 0
    sign = "\N{MINUS SIGN}" if by < 0 else "+"
    return f"{sign}{percent:,.{digits}f}\N{NO-BREAK SPACE}%"
