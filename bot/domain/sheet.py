"""How do rows become a CSV file that no spreadsheet takes for formulas?"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import msgspec

from bot.domain import inert

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FORMULA = ("=", "+", "-", "@", "\t", "\r", "|", "%")  # what a cell must not begin with


def write(columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> str:
    """Return CSV with a line of names; what is no number is a text, whatever it begins with."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([cell(row[name]) for name in columns])
    return text.getvalue()


def cell(value: Any) -> str:
    """Return one value; an apostrophe before what could be a formula makes it a text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    said = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    plain = inert.clean(said)
    return f"'{plain}" if plain.lstrip().startswith(FORMULA) or plain.startswith(FORMULA) else plain
