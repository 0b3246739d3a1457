"""A server of ClickHouse: queries, statements and inserts, and what its errors mean for a sink."""

from __future__ import annotations

import asyncio
import contextlib
import re
import struct
from typing import TYPE_CHECKING, Any

import aiohttp
import clickhouse_connect
from clickhouse_connect.driver.exceptions import ClickHouseError, DataError

from bot.sinks.driver import BatchRefused, SinkAway, SinkForbidden, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from clickhouse_connect.driver.asyncclient import AsyncClient

    from bot.sinks.clickhouse.options import Server

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


class ClickhouseClient:
    """A connection that is made on first use."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._opened: AsyncClient | None = None
        self._opening = asyncio.Lock()

    async def read(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of a query; times are numbers of the fractions of a second that their column has."""
        with _calling():
            client = await self._client()
            found = await client.query(sql, parameters=dict(parameters or {}), query_formats=TICKS)
            return [tuple(row) for row in found.result_rows]

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


@contextlib.contextmanager
def _reading_values() -> Iterator[None]:
    """Turn what the client says of values that fit into no column into ours."""
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
        raise as_ours(error) from None
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise SinkAway(f"no answer: {str(error) or type(error).__name__}") from None


def as_ours(error: ClickHouseError) -> Exception:
    """Return what an error means for a sink."""
    code: int | None = getattr(error, "code", None)
    words = _describe(error)
    if code in FORBIDDEN:
        return SinkForbidden(f"403 {words}")
    if code in SCHEMA:
        return Stopped(f"schema: {words}")
    return BatchRefused(words) if code in ROW else SinkAway(words)


def _describe(error: Exception) -> str:
    """Return what the server says, without addresses and versions."""
    words = str(error).partition("Stack trace")[0]
    while (shorter := AROUND.sub("", words)) != words:
        words = shorter
    return " ".join(words.split())
