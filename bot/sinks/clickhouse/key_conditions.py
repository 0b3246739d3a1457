"""Conditions on the keys of rows, with the keys as a parameter: no statement is put together from values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.sinks.clickhouse.column_types import plain
from bot.sinks.clickhouse.table_schema import quoted

if TYPE_CHECKING:
    from bot.core.column_tables import TableCopy

KEYS_AT_ONCE = 500  # of one statement


def key_condition(copy: TableCopy) -> str:
    """Return the condition that a row has one of the keys in the parameter `keys`, a list of tuples."""
    names = ", ".join(map(quoted, copy.key))
    types = ", ".join(_written(copy.table.columns[name]) for name in copy.key)
    return f"tuple({names}) IN {{keys:Array(Tuple({types}))}}"


def _written(text: str) -> str:
    """Return a type as parameters have it."""
    found = plain(text)
    return f"{found.name}({', '.join(found.arguments)})" if found.arguments else found.name
