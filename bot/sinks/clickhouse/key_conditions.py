"""Conditions on the keys of rows, with the keys as a parameter: no statement is put together from values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.sinks.clickhouse.column_types import plain
from bot.sinks.clickhouse.table_schema import quoted

if TYPE_CHECKING:
    from bot.core.column_tables import TableCopy

KEYS_AT_ONCE = 500  # of one statement
# times are compared as the numbers that we have of them: days, and seconds
AS_NUMBERS = {"Date": ("toUInt16", "UInt16"), "DateTime": ("toUnixTimestamp", "UInt32")}
AS_NUMBERS["DateTime64"] = AS_NUMBERS["DateTime"]


def key_condition(copy: TableCopy) -> str:
    """Return the condition that a row has one of the keys in the parameter `keys`, a list of tuples."""
    compared = [_compared(name, copy.table.columns[name]) for name in copy.key]
    names = ", ".join(name for name, _ in compared)
    types = ", ".join(kind for _, kind in compared)
    return f"tuple({names}) IN {{keys:Array(Tuple({types}))}}"


def _compared(name: str, text: str) -> tuple[str, str]:
    """Return a column as it is compared, and its type as parameters have it."""
    found = plain(text)
    if found.name in AS_NUMBERS:
        function, kind = AS_NUMBERS[found.name]
        return f"{function}({quoted(name)})", kind
    written = f"{found.name}({', '.join(found.arguments)})" if found.arguments else found.name
    return quoted(name), written
