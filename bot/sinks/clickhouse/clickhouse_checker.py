"""Compares what is stored here with the rows of a table: which are missing, and whether some are the same."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING, Any

from bot.sinks.clickhouse.column_types import converter
from bot.sinks.clickhouse.key_conditions import KEYS_AT_ONCE, key_condition
from bot.sinks.clickhouse.table_schema import full_name, quoted, read_columns
from bot.sinks.driver import Difference

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bot.core.column_tables import TableCopy
    from bot.db.exports import Key
    from bot.sinks.clickhouse.clickhouse_client import ClickhouseClient
    from bot.sinks.clickhouse.options import ClickhouseOptions
    from bot.sinks.driver import Batch, Outgoing

DIGITS = 5  # of a number with a fraction that have to be the same: the table may keep fewer than we do


class ClickhouseChecker:
    """Compares one export."""

    def __init__(self, client: ClickhouseClient, options: ClickhouseOptions, batch: Batch) -> None:
        self._client = client
        self._copy: TableCopy = batch.make(batch.export)
        self._table = full_name(self._copy.table, options)
        self._final = " FINAL" if self._copy.table.versioned or self._copy.table.replaces else ""
        self._options = options

    async def missing(self, items: Sequence[Outgoing]) -> set[Key]:
        """Return which keys have no row though they should."""
        wanted = {item.key: self._key_of(item) for item in items if self._has_rows(item)}
        if not await read_columns(self._client, self._copy.table, self._options):
            return set(wanted)
        found: set[tuple[Any, ...]] = set()
        names = ", ".join(map(quoted, self._copy.key))
        sql = self._select(f"DISTINCT {names}")
        for keys in _pages(list(wanted.values())):
            found.update(await self._client.read(sql, {"keys": keys}))
        return {key for key, values in wanted.items() if values not in found}

    async def differing(self, items: Sequence[Outgoing]) -> list[Difference]:
        """Compare all declared columns of the rows of a few keys."""
        columns = await read_columns(self._client, self._copy.table, self._options)
        if not columns:
            return [Difference(key=item.key, words=f"there is no {self._copy.table.name}") for item in items]
        names = [name for name in self._copy.table.columns if name in columns]
        listed = ", ".join(map(quoted, (*self._copy.key, *names)))
        sql = self._select(listed)
        width = len(self._copy.key)
        found = []
        for some in _pages(items):
            stored: defaultdict[tuple[Any, ...], list[Any]] = defaultdict(list)
            for row in await self._client.read(sql, {"keys": [self._key_of(item) for item in some]}):
                stored[row[:width]].append(_rounded(row[width:]))
            for item in some:
                words = await asyncio.to_thread(
                    self._compare, item, {name: columns[name] for name in names}, stored[self._key_of(item)]
                )
                found += [Difference(key=item.key, words=words)] if words else []
        return found

    def _compare(self, item: Outgoing, columns: dict[str, str], stored: list[Any]) -> str:
        """Return how the rows of a key differ from those that are stored, empty where they do not."""
        expected = [
            _rounded([converter(kind)(row.get(name)) for name, kind in columns.items()])
            for row in self._copy.rows(item.row or {})
        ]
        if not stored and expected:
            return f"{self._copy.table.name} has no row"
        if sorted(map(repr, expected)) == sorted(map(repr, stored)):
            return ""
        if self._copy.shared and all(one in stored for one in expected):
            return ""
        if len(expected) != len(stored):
            return f"{self._copy.table.name} has {len(stored)} rows, not {len(expected)}"
        if len(expected) > 1:
            return f"{self._copy.table.name} has other values"
        names = [
            name for name, ours, theirs in zip(columns, expected[0], stored[0], strict=True) if ours != theirs
        ]
        return f"{self._copy.table.name} has another {', '.join(names)}"

    def _select(self, columns: str) -> str:
        """Return the query for rows of some keys; names are ours, values are parameters."""
        return f"SELECT {columns} FROM {self._table}{self._final} WHERE {key_condition(self._copy)}"  # noqa: S608 - see above

    def _key_of(self, item: Outgoing) -> tuple[Any, ...]:
        return tuple(self._copy.key_values(item.key, item.row) or ())

    def _has_rows(self, item: Outgoing) -> bool:
        if item.row is None or self._copy.key_values(item.key, item.row) is None:
            return False
        if not (self._copy.several or self._copy.shared):
            return True
        return next(iter(self._copy.rows(item.row)), None) is not None


def _pages(values: Sequence[Any]) -> Iterator[list[Any]]:
    left = iter(values)
    while some := list(islice(left, KEYS_AT_ONCE)):
        yield some


def _rounded(value: Any) -> Any:
    """Return a value with fewer digits, and lists as such."""
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return value
