"""The driver of ClickHouse: rows become columns of a batch, and what is gone is deleted or marked as deleted."""

from __future__ import annotations

import asyncio
import hashlib
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from bot.sinks.clickhouse.clickhouse_checker import ClickhouseChecker
from bot.sinks.clickhouse.clickhouse_client import UNREADABLE, ClickhouseClient
from bot.sinks.clickhouse.column_types import convert_column
from bot.sinks.clickhouse.key_conditions import KEYS_AT_ONCE, key_condition
from bot.sinks.clickhouse.options import server_of
from bot.sinks.clickhouse.table_schema import full_name, prepare_table
from bot.sinks.driver import BatchRefused, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bot.core.column_tables import TableCopy
    from bot.sinks.clickhouse.options import ClickhouseOptions
    from bot.sinks.driver import Batch, Outgoing, Refusal
    from bot.sinks.settings import SinkSettings

ROWS_AT_ONCE = 20_000  # of one insert: a key may have millions
OURS = {"_version", "_deleted"}


def open_clickhouse(settings: SinkSettings) -> ClickhouseDriver:
    """Return the driver of a sink."""
    return ClickhouseDriver(settings.options)


class Chunk(NamedTuple):
    """Some rows as columns."""

    columns: dict[str, str]  # types by name
    data: list[list[Any]]


class ClickhouseDriver:
    """Writes rows to tables."""

    def __init__(self, options: ClickhouseOptions) -> None:
        self._options = options
        self._client = ClickhouseClient(server_of(options))
        self._tables: dict[str, dict[str, str]] = {}  # types of the columns of those that will do

    async def send(self, batch: Batch) -> Sequence[Refusal]:
        """Write a batch; a value that fits into no column has it refused as a whole."""
        copy: TableCopy = batch.make(batch.export)
        try:
            columns = await self._columns(copy)
            kept = [item for item in batch.items if item.row is not None and not item.deleted]
            gone = [item for item in batch.items if item.deleted]
            replaced = kept if copy.several else []
            if not copy.table.versioned:
                await self._delete(copy, [*gone, *replaced])
            await self._insert(copy, kept, columns)
            if copy.table.versioned:
                await self._mark_deleted(copy, gone, "<=")
                await self._mark_deleted(copy, replaced, "<")
        except Stopped:
            self._tables.pop(copy.table.name, None)  # it is looked at again once somebody mended it
            raise
        return ()

    def checker(self, batch: Batch) -> ClickhouseChecker:
        """Return what compares an export with its table."""
        return ClickhouseChecker(self._client, self._options, batch)

    async def check_access(self) -> None:
        """Ask for something."""
        await self._client.read("SELECT 1")

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def _columns(self, copy: TableCopy) -> dict[str, str]:
        if copy.table.name not in self._tables:
            self._tables[copy.table.name] = await prepare_table(self._client, copy.table, self._options)
        return self._tables[copy.table.name]

    async def _insert(self, copy: TableCopy, items: Sequence[Outgoing], columns: Mapping[str, str]) -> None:
        """Insert rows, some thousands at once; they are made in a thread."""
        name = full_name(copy.table, self._options)
        chunks = _chunks(copy, items, columns)
        token = _token(name, items)
        number = 0
        while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
            await self._client.insert(name, chunk.columns, chunk.data, token=f"{token}-{number}")
            number += 1

    async def _mark_deleted(self, copy: TableCopy, items: Sequence[Outgoing], older: str) -> None:
        """Add to each older row of some keys a version that says that it is gone, in the part where it lies."""
        name = full_name(copy.table, self._options)
        for keys in _keys(copy, items):
            version = max(item.version for item in items)
            deleted = "* REPLACE ({version:UInt64} AS _version, 1 AS _deleted)"
            chosen = f"_version {older} {{version:UInt64}} AND {key_condition(copy)}"
            sql = f"INSERT INTO {name} SELECT {deleted} FROM {name} FINAL WHERE {chosen}"  # noqa: S608 - names are ours
            await self._client.change(sql, {"version": version, "keys": keys})

    async def _delete(self, copy: TableCopy, items: Sequence[Outgoing]) -> None:
        name = full_name(copy.table, self._options)
        for keys in _keys(copy, items):
            sql = f"DELETE FROM {name} WHERE {key_condition(copy)}"  # noqa: S608 - names are ours
            await self._client.change(sql, {"keys": keys})


def _keys(copy: TableCopy, items: Iterable[Outgoing]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the keys of rows, as many as a statement takes; those of which nothing is known are in no table."""
    found = [copy.key_values(item.key, item.row) for item in items]
    known = iter([tuple(one) for one in found if one is not None])
    while some := list(islice(known, KEYS_AT_ONCE)):
        yield some


def _chunks(copy: TableCopy, items: Sequence[Outgoing], columns: Mapping[str, str]) -> Iterator[Chunk]:
    """Yield rows as columns; raises BatchRefused where a value fits into none."""
    declared = copy.table.columns
    rows = ((row, item.version) for item in items for row in copy.rows(item.row or {}))
    try:
        while some := list(islice(rows, ROWS_AT_ONCE)):
            further = {name for row, _ in some for name in row} if copy.table.open else set()
            names = [name for name in columns if name in declared or name in further - OURS]
            types = {name: columns[name] for name in names}
            data = [convert_column(kind, [row.get(name) for row, _ in some]) for name, kind in types.items()]
            if copy.table.versioned:
                data += [[version for _, version in some], [0] * len(some)]
                types |= {name: columns[name] for name in ("_version", "_deleted")}
            yield Chunk(types, data)
    except UNREADABLE as error:
        raise BatchRefused(f"a value does not fit: {error}") from None


def _token(name: str, items: Sequence[Outgoing]) -> str:
    """Return what is the same for the same rows of the same time."""
    sent = [(item.key, item.version) for item in items]
    return hashlib.sha256(msgspec.json.encode((name, sent))).hexdigest()
