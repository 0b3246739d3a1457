"""The driver of ClickHouse: rows become columns of a batch, and what is gone is deleted or marked as deleted."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import struct
from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import clickhouse_connect
import msgspec
from clickhouse_connect.driver.exceptions import ClickHouseError, DataError

from bot.sinks.clickhouse_tables import (
    KEYS_AT_ONCE,
    convert_column,
    converter_of,
    full_name,
    key_condition,
    prepare_table,
    quoted,
    read_columns,
)
from bot.sinks.driver import BatchRefused, Difference, SinkAway, SinkForbidden, Stopped
from bot.sinks.settings import clickhouse_server

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from clickhouse_connect.driver.asyncclient import AsyncClient

    from bot.db.exports import RowKey, TableCopy
    from bot.sinks.driver import Batch, Outgoing, Refusal
    from bot.sinks.settings import ClickhouseOptions, ClickhouseServer, SinkSettings

PATIENCE = 60  # seconds for one statement
CONNECT_PATIENCE = 10
# a batch is answered for once it is stored; the server gathers nothing: that is done here, by what is marked
INSERT = {"async_insert": 0, "wait_end_of_query": 1}
TICKS = {"DateTime64": "int", "DateTime": "int", "Date": "int"}  # how times are read
FORBIDDEN = frozenset({164, 192, 193, 194, 195, 497, 516})  # password, user, address, grants, read only
SCHEMA = frozenset({8, 10, 16, 47, 60, 81, 122, 181})  # columns, tables, databases
ROW = frozenset({6, 26, 27, 33, 38, 41, 53, 69, 70, 72, 131, 321, 349, 407, 432, 469, 691})  # values
UNREADABLE = (DataError, TypeError, ValueError, OverflowError, AttributeError, struct.error)
AROUND = re.compile(
    r"^.*?server response: |^.*?DB::Exception: | \(for url [^)]*\)|\(version [^)]*\)", re.DOTALL
)
DIGITS = 5  # of a number with a fraction that have to be the same: the table may keep fewer than we do
ROWS_AT_ONCE = 20_000  # of one insert: a key may have millions
OWN_COLUMNS = {"_version", "_deleted"}


class ColumnChunk(NamedTuple):
    """Some rows as columns."""

    columns: dict[str, str]  # types by name
    data: list[list[Any]]


class ClickhouseClient:
    """A connection that is made on first use."""

    def __init__(self, server: ClickhouseServer) -> None:
        self._server = server
        self._opened: AsyncClient | None = None
        self._opening = asyncio.Lock()

    async def read(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of a query; times are numbers, in the unit of their column."""
        with _calling():
            client = await self._client()
            result = await client.query(sql, parameters=dict(parameters or {}), query_formats=TICKS)
            return [tuple(row) for row in result.result_rows]

    async def change(self, sql: str, parameters: Mapping[str, Any] | None = None) -> None:
        """Run a statement."""
        with _calling():
            await (await self._client()).command(sql, parameters=dict(parameters or {}))

    async def insert(
        self, table: str, columns: Mapping[str, str], data: Sequence[Sequence[Any]], *, token: str
    ) -> None:
        """Insert columns; the same token twice is one insert, where the table remembers them."""
        with _calling(), _reading_values():
            await (await self._client()).insert(
                table,
                data,
                column_names=list(columns),
                column_type_names=list(columns.values()),
                column_oriented=True,
                settings={**INSERT, "insert_deduplication_token": token},
            )

    async def close(self) -> None:
        """Close the connection."""
        opened, self._opened = self._opened, None
        if opened:
            await opened.close()

    async def _client(self) -> AsyncClient:
        async with self._opening:
            if self._opened is None:
                server = self._server
                self._opened = await clickhouse_connect.get_async_client(
                    host=server.host,
                    port=server.port,
                    secure=server.secure,
                    username=server.username,
                    password=server.password,
                    client_name="ootbot",
                    connect_timeout=CONNECT_PATIENCE,
                    send_receive_timeout=PATIENCE,
                    query_limit=0,
                    query_retries=0,
                    autogenerate_session_id=False,
                    form_encode_query_params=True,
                )
        return self._opened


def as_sink_error(error: ClickHouseError) -> Exception:
    """Return what an error means for a sink."""
    code: int | None = getattr(error, "code", None)
    words = _describe(error)
    if code in FORBIDDEN:
        return SinkForbidden(f"403 {words}")
    if code in SCHEMA:
        return Stopped(f"schema: {words}")
    return BatchRefused(words) if code in ROW else SinkAway(words)


class ClickhouseChecker:
    """Compares one export."""

    def __init__(self, client: ClickhouseClient, options: ClickhouseOptions, batch: Batch) -> None:
        self._client = client
        self._copy: TableCopy = batch.make(batch.export)
        self._table = full_name(self._copy.table, options)
        self._final = " FINAL" if self._copy.table.versioned or self._copy.table.replaces else ""
        self._options = options

    async def missing(self, items: Sequence[Outgoing]) -> set[RowKey]:
        """Return the keys whose row is missing."""
        wanted = {item.key: self._key_of(item) for item in items if self._has_rows(item)}
        if not await read_columns(self._client, self._copy.table, self._options):
            return set(wanted)
        stored: set[tuple[Any, ...]] = set()
        names = ", ".join(map(quoted, self._copy.key))
        sql = self._select(f"DISTINCT {names}")
        for keys in _pages(list(wanted.values())):
            stored.update(await self._client.read(sql, {"keys": keys}))
        return {key for key, values in wanted.items() if values not in stored}

    async def differing(self, items: Sequence[Outgoing]) -> list[Difference]:
        """Compare all declared columns for a few keys."""
        columns = await read_columns(self._client, self._copy.table, self._options)
        if not columns:
            return [Difference(key=item.key, words=f"there is no {self._copy.table.name}") for item in items]
        names = [name for name in self._copy.table.columns if name in columns]
        listed = ", ".join(map(quoted, (*self._copy.key, *names)))
        sql = self._select(listed)
        width = len(self._copy.key)
        differences = []
        for some in _pages(items):
            stored: defaultdict[tuple[Any, ...], list[Any]] = defaultdict(list)
            for row in await self._client.read(sql, {"keys": [self._key_of(item) for item in some]}):
                stored[row[:width]].append(_rounded(row[width:]))
            for item in some:
                words = await asyncio.to_thread(
                    self._compare, item, {name: columns[name] for name in names}, stored[self._key_of(item)]
                )
                differences += [Difference(key=item.key, words=words)] if words else []
        return differences

    def _compare(self, item: Outgoing, columns: dict[str, str], stored: list[Any]) -> str:
        """Return how a key's rows differ from the stored ones, empty where they do not."""
        expected = [
            _rounded([converter_of(kind)(row.get(name)) for name, kind in columns.items()])
            for row in self._copy.rows(item.row or {})
        ]
        if not stored and expected:
            return f"{self._copy.table.name} has no row"
        if sorted(map(repr, expected)) == sorted(map(repr, stored)):
            return ""
        if self._copy.shared and all(row in stored for row in expected):
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


def open_clickhouse(settings: SinkSettings) -> ClickhouseDriver:
    """Return the driver of a sink."""
    return ClickhouseDriver(settings.options)


class ClickhouseDriver:
    """Writes rows to tables."""

    def __init__(self, options: ClickhouseOptions) -> None:
        self._options = options
        self._client = ClickhouseClient(clickhouse_server(options))
        self._tables: dict[str, dict[str, str]] = {}  # types of the columns of those that will do

    async def send(self, batch: Batch) -> Sequence[Refusal]:
        """Write a batch; a value that fits no column refuses all of it."""
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
        """Run a query that needs no table."""
        await self._client.read("SELECT 1")

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def _columns(self, copy: TableCopy) -> dict[str, str]:
        if copy.table.name not in self._tables:
            self._tables[copy.table.name] = await prepare_table(self._client, copy.table, self._options)
        return self._tables[copy.table.name]

    async def _insert(self, copy: TableCopy, items: Sequence[Outgoing], columns: Mapping[str, str]) -> None:
        """Insert rows, some thousands at once; a thread converts them."""
        name = full_name(copy.table, self._options)
        chunks = _chunks(copy, items, columns)
        token = _token(name, items)
        number = 0
        while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
            await self._client.insert(name, chunk.columns, chunk.data, token=f"{token}-{number}")
            number += 1

    async def _mark_deleted(self, copy: TableCopy, items: Sequence[Outgoing], older: str) -> None:
        """Mark each older row of some keys as deleted, by a newer version in the same partition."""
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


@contextlib.contextmanager
def _reading_values() -> Iterator[None]:
    """Turn the client's errors about values that fit no column into ours."""
    try:
        yield
    except UNREADABLE as error:
        raise BatchRefused(f"a value does not fit: {str(error).partition(chr(10))[0]}") from None


@contextlib.contextmanager
def _calling() -> Iterator[None]:
    """Turn the client's errors into ours."""
    try:
        yield
    except DataError:
        raise
    except ClickHouseError as error:
        raise as_sink_error(error) from None
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise SinkAway(f"no answer: {str(error) or type(error).__name__}") from None


def _describe(error: Exception) -> str:
    """Return what the server says, without addresses and versions."""
    words = str(error).partition("Stack trace")[0]
    while (shorter := AROUND.sub("", words)) != words:
        words = shorter
    return " ".join(words.split())


def _pages(values: Sequence[Any]) -> Iterator[list[Any]]:
    left = iter(values)
    while some := list(islice(left, KEYS_AT_ONCE)):
        yield some


def _rounded(value: Any) -> Any:
    """Return a value with fewer digits, and lists as such."""
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    if isinstance(value, list | tuple):
        return [_rounded(element) for element in value]
    if isinstance(value, dict):
        return {name: _rounded(element) for name, element in value.items()}
    return value


def _keys(copy: TableCopy, items: Iterable[Outgoing]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the keys of rows, as many as a statement takes; unknown ones are in no table."""
    key_values = [copy.key_values(item.key, item.row) for item in items]
    known = iter([tuple(values) for values in key_values if values is not None])
    while some := list(islice(known, KEYS_AT_ONCE)):
        yield some


def _chunks(copy: TableCopy, items: Sequence[Outgoing], columns: Mapping[str, str]) -> Iterator[ColumnChunk]:
    """Yield rows as columns; raises BatchRefused where a value fits none."""
    declared = copy.table.columns
    rows = ((row, item.version) for item in items for row in copy.rows(item.row or {}))
    try:
        while some := list(islice(rows, ROWS_AT_ONCE)):
            further = {name for row, _ in some for name in row} if copy.table.open else set()
            names = [name for name in columns if name in declared or name in further - OWN_COLUMNS]
            types = {name: columns[name] for name in names}
            data = [convert_column(kind, [row.get(name) for row, _ in some]) for name, kind in types.items()]
            if copy.table.versioned:
                data += [[version for _, version in some], [0] * len(some)]
                types |= {name: columns[name] for name in ("_version", "_deleted")}
            yield ColumnChunk(types, data)
    except UNREADABLE as error:
        raise BatchRefused(f"a value does not fit: {error}") from None


def _token(name: str, items: Sequence[Outgoing]) -> str:
    """Return a token that is the same for the same rows of the same time."""
    sent = [(item.key, item.version) for item in items]
    return hashlib.sha256(msgspec.json.encode((name, sent))).hexdigest()
