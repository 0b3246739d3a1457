"""CSV files in which no spreadsheet finds a formula."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import msgspec

from bot.core import escaping

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FORMULA = ("=", "+", "-", "@", "\t", "\r", "|", "%")  # what a cell must not begin with


def write(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Return CSV with a line of names; everything but numbers is text, whatever it begins with."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([cell(row[name]) for name in columns])
    return text.getvalue()


def cell(value: object) -> str:
    """Return one value; an apostrophe before what could be a formula makes it a text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    plain = escaping.clean(text)
    return f"'{plain}" if plain.lstrip().startswith(FORMULA) or plain.startswith(FORMULA) else plain
