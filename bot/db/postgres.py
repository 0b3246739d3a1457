"""The connections to PostgreSQL: SQLAlchemy's asynchronous engine, each connection with a watchdog."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import sqlalchemy as sa

from bot.db import connection_watchdog, db_errors
from bot.db.connection import Result, fetch_all
from bot.db.statements import Statement

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

    from bot.db.connection import Parameters
    from bot.db.connection_watchdog import Watchdog
    from bot.db.postgres_server import PostgresServer

T = TypeVar("T")
# by default PostgreSQL gives every statement a snapshot of its own
SNAPSHOT: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
POOL: dict[str, Any] = {
    "pool_size": 10,
    "max_overflow": 10,
    "pool_timeout": 5,
}


class Engine:
    """A pool of connections to a server."""

    def __init__(self, engine: AsyncEngine, server: PostgresServer) -> None:
        self._engine = engine
        self._server = server
        self._reader = engine.execution_options(**SNAPSHOT)
        self._watchdogs: WeakSet[Watchdog] = WeakSet()  # of connections in use
        self.pool: Any = engine.sync_engine.pool

    @contextlib.asynccontextmanager
    async def connect(self, *, reads: bool = False, answer_within: float) -> AsyncIterator[Connection]:
        """Yield a connection, to read one snapshot or to write; what is not committed at the end is rolled back."""
        async with self._watched(self._reader if reads else self._engine, answer_within) as (conn, watchdog):
            yield Connection(conn, watchdog)

    @contextlib.asynccontextmanager
    async def driver_connection(
        self, url: sa.URL, answer_within: float
    ) -> AsyncIterator[tuple[Any, Watchdog]]:
        """Yield asyncpg's own connection, outside any transaction, and its watchdog."""
        import asyncpg  # noqa: PLC0415 - an extra

        async with self._watched(self._engine, answer_within) as (conn, watchdog):
            try:
                yield (await conn.get_raw_connection()).driver_connection, watchdog
            except (
                asyncpg.PostgresError,
                asyncpg.InterfaceError,
                asyncpg.InternalClientError,  # the server hung up between two messages
            ) as error:
                if watchdog.expired:
                    # makes the pool drop all its connections to that server
                    with contextlib.suppress(sa.exc.DBAPIError):
                        await conn.exec_driver_sql("SELECT 1")
                await conn.invalidate()
                raise db_errors.unavailable(url, error) from error

    def hang_up(self) -> None:
        """Drop the connections in use: nothing that was begun on them is committed."""
        for watchdog in list(self._watchdogs):
            watchdog.hang_up()

    async def dispose(self) -> None:
        """Close every connection, without waiting for the server."""
        await self._engine.dispose()

    @contextlib.asynccontextmanager
    async def _watched(
        self, engine: AsyncEngine, answer_within: float
    ) -> AsyncIterator[tuple[AsyncConnection, Watchdog]]:
        watchdog = None
        await self._server.examine()
        try:
            async with connection_watchdog.connected(engine, answer_within) as (conn, watchdog):
                self._watchdogs.add(watchdog)
                yield conn, watchdog
        finally:  # only now: giving a connection back may take a rollback
            if watchdog is not None:
                self._watchdogs.discard(watchdog)


class Connection:
    """A connection of that engine; each answer resets its watchdog."""

    def __init__(self, conn: AsyncConnection, watchdog: Watchdog) -> None:
        self._conn = conn
        self._watchdog = watchdog

    async def execute(self, statement: sa.Executable | Statement, parameters: Parameters = None) -> Result:
        """Execute a statement once, or for each of several sets of parameters."""
        element = statement.element if isinstance(statement, Statement) else statement
        found = await self._conn.execute(element, parameters)
        self._watchdog.answered()
        return fetch_all(found)

    async def exec_driver_sql(self, statement: str, parameters: Any = None) -> Result:
        """Execute a statement in the driver's own SQL."""
        found = await self._conn.exec_driver_sql(statement, parameters)
        self._watchdog.answered()
        return fetch_all(found)

    async def stream(self, statement: sa.Select[Any], *, size: int) -> AsyncIterator[Result]:
        """Execute a query and yield its rows, `size` at a time."""
        found = await self._conn.stream(statement.execution_options(yield_per=size))
        names = tuple(found.keys())
        async for rows in found.partitions():
            self._watchdog.answered()
            yield Result(names, rows, -1)

    async def run_sync(self, work: Callable[[sa.Connection], T]) -> T:
        """Return what `work` returns for SQLAlchemy's connection."""
        return await self._conn.run_sync(work)

    @contextlib.asynccontextmanager
    async def begin(self) -> AsyncIterator[None]:
        """Commit at the end, or roll back on any error."""
        async with self._conn.begin():
            yield

    @contextlib.asynccontextmanager
    async def attempt(self) -> AsyncIterator[None]:
        """Let one statement fail: PostgreSQL needs a savepoint for that."""
        async with self._conn.begin_nested():
            yield


def make(server: PostgresServer, *, lost_after: float | None, ping: bool = False, **options: Any) -> Engine:
    """Return an engine; `lost_after`: seconds after which the server ends an idle transaction.

    With `ping` a connection has to answer before it is used: for those that are idle for long.
    """
    # brings SQLAlchemy's ORM with it, a tenth of the time a start takes
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415

    engine = create_async_engine(sa.URL.create("postgresql+asyncpg"), **POOL, **options)
    _connect_to(engine, server)
    _check_liveness(engine, ping=ping)
    if lost_after is not None:
        _limit_idle_transactions(engine, server, lost_after)
    return Engine(engine, server)


def _connect_to(engine: AsyncEngine, server: PostgresServer) -> None:
    """Have new connections made by the driver's own reading of the address."""

    def set_arguments(_dialect: object, _record: object, _args: object, parameters: dict[str, Any]) -> None:
        parameters.clear()
        parameters.update(server.arguments())

    sa.event.listen(engine.sync_engine, "do_connect", set_arguments)


def _check_liveness(engine: AsyncEngine, *, ping: bool) -> None:
    """Have the pool hand out no connection that has ended since its last use, and close without waiting.

    With `ping` the server must answer within PING_TIMEOUT first.
    """

    def check(connection: Any, _record: object, _proxy: object) -> None:
        if connection.driver_connection.is_closed():
            raise sa.exc.DisconnectionError
        if ping:
            timer = asyncio.get_running_loop().call_later(
                connection_watchdog.PING_TIMEOUT, connection.driver_connection.terminate
            )
            try:
                connection.ping()
            except (connection.dbapi.Error, OSError) as error:
                raise sa.exc.DisconnectionError from error
            finally:
                timer.cancel()

    def terminate(connection: Any, _record: object) -> None:
        connection.driver_connection.terminate()

    sa.event.listen(engine.sync_engine, "checkout", check)
    sa.event.listen(engine.sync_engine, "close", terminate)


def _limit_idle_transactions(engine: AsyncEngine, server: PostgresServer, lost_after: float) -> None:
    """Have PostgreSQL end transactions of a process that is frozen or whose machine is gone.

    By itself it notices neither for two hours, and their locks would block every other process.
    """
    limit = f"SELECT set_config('idle_in_transaction_session_timeout', '{round(lost_after * 1000)}', false)"

    def set_limit(connection: Any, _record: object) -> None:
        if server.pooled:  # it would be set for another client's transactions
            return
        cursor = connection.cursor()
        cursor.execute(limit)
        cursor.close()
        connection.commit()

    sa.event.listen(engine.sync_engine, "connect", set_limit)
