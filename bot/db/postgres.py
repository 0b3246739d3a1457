"""PostgreSQL: what is known of the server, its connections, each with a watchdog, and wake-ups between processes.

asyncpg is an extra: it is imported on first use.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import sqlalchemy as sa
import structlog

from bot.core.errors import GiveUp, Misconfigured, StoreUnavailable
from bot.core.setting_types import read_address
from bot.db import db_errors
from bot.db.statements import Result, Statement, fetch_all

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

    from bot.db.db_errors import Watchdog
    from bot.db.statements import Parameters
    from bot.db.store import Store

# what a pooler passes on is another server process than it says it is
EXAMINE = "SELECT pg_backend_pid(), getdatabaseencoding(), current_database()"
T = TypeVar("T")
# by default PostgreSQL gives every statement a snapshot of its own
SNAPSHOT: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
POOL: dict[str, Any] = {
    "pool_size": 10,
    "max_overflow": 10,
    "pool_timeout": 5,
}
CHANNEL = "ootbot_work"
CHECK_EVERY = 30.0  # seconds between checks that the connection still works
LISTEN_ANSWER_WITHIN = 2 * CHECK_EVERY  # seconds without an answer until another connection is used
LISTEN_WAITS = (1.0, 30.0)  # seconds before listening is tried again: first and longest

log = structlog.get_logger("bot.db.postgres")


class PostgresServer:
    """A server's address; `pooled` once a pooler, such as PgBouncer, was found in front of it."""

    def __init__(self, text: str, url: sa.URL) -> None:
        self._address = read_address(text)
        self._timeout = self._address.connect_timeout or db_errors.CONNECT_TIMEOUT
        self._url = url  # for messages
        self._examined = False
        self.pooled = False

    def arguments(self) -> dict[str, Any]:
        """Return how SQLAlchemy's driver connects.

        Of a pooler each transaction may get another server process, which knows no statements that were prepared
        before: there statements have no names, and are prepared each time.
        """
        arguments = self._arguments()
        if self.pooled:
            unnamed: dict[str, Any] = {
                "statement_cache_size": 0,
                "prepared_statement_cache_size": 0,
                "prepared_statement_name_func": lambda: "",
            }
            arguments |= unnamed
        return arguments

    async def examine(self) -> None:
        """Connect once and find out what the server is.

        Raises Misconfigured where the database cannot hold all text, StoreUnavailable where it cannot be used.
        """
        if self._examined:
            return
        import asyncpg  # noqa: PLC0415 - an extra

        try:
            connection = await asyncpg.connect(**self._arguments(), statement_cache_size=0)
            try:
                process, encoding, database = await connection.fetchrow(
                    EXAMINE, timeout=db_errors.REQUEST_TIMEOUT
                )
                self.pooled = process != connection.get_server_pid()
            finally:
                connection.terminate()
        except TimeoutError as error:
            waited = TimeoutError(f"no answer for {self._timeout:g} s")
            raise db_errors.unavailable(self._url, waited) from error
        except PermissionError as error:
            raise GiveUp(_unreadable(error)) from error
        except KeyError as error:
            raise Misconfigured([_nameless()]) from error
        except (
            OSError,
            ValueError,
            asyncpg.PostgresError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,
        ) as error:
            raise db_errors.unavailable(self._url, error) from error
        if encoding != "UTF8":
            raise Misconfigured([_wrong_encoding(database, encoding)])
        self._examined = True

    def _arguments(self) -> dict[str, Any]:
        return {"dsn": self._address.url, "timeout": self._timeout}


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
            async with db_errors.connected(engine, answer_within) as (conn, watchdog):
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
        cursor = await self._conn.execute(element, parameters)
        self._watchdog.answered()
        return fetch_all(cursor)

    async def exec_driver_sql(self, statement: str, parameters: Any = None) -> Result:
        """Execute a statement in the driver's own SQL."""
        cursor = await self._conn.exec_driver_sql(statement, parameters)
        self._watchdog.answered()
        return fetch_all(cursor)

    async def stream(self, statement: sa.Select[Any], *, size: int) -> AsyncIterator[Result]:
        """Execute a query and yield its rows, `size` at a time."""
        cursor = await self._conn.stream(statement.execution_options(yield_per=size))
        names = tuple(cursor.keys())
        async for rows in cursor.partitions():
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


def make_postgres_engine(
    server: PostgresServer, *, lost_after: float | None, ping: bool = False, **options: Any
) -> Engine:
    """Return an engine; `lost_after`: seconds after which the server ends an idle transaction.

    With `ping` a connection has to answer before it is used: for connections that idle for long.
    """
    # brings SQLAlchemy's ORM with it, a tenth of the time a start takes
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415

    engine = create_async_engine(sa.URL.create("postgresql+asyncpg"), **POOL, **options)
    _connect_to(engine, server)
    _check_liveness(engine, ping=ping)
    if lost_after is not None:
        _limit_idle_transactions(engine, server, lost_after)
    return Engine(engine, server)


def wake_up_statement(process: str) -> sa.Select[Any]:
    """Return the statement that wakes the other processes at the commit; PostgreSQL only."""
    return sa.select(sa.func.pg_notify(CHANNEL, process))


async def listen_for_work(store: Store) -> None:
    """Set `work_waiting` whenever another process leaves work, until cancelled. SQLite has no other process."""
    if store.sqlite:
        return
    wait, longest = LISTEN_WAITS
    while True:
        began = asyncio.get_running_loop().time()
        try:
            async with store.connection(answer_within=LISTEN_ANSWER_WITHIN) as (connection, watchdog):
                await _listen_on_connection(store, connection, watchdog)
        except StoreUnavailable as error:
            log.warning(
                "cannot listen for other processes, polling every second", reason=str(error), again_in=wait
            )
        if asyncio.get_running_loop().time() - began > CHECK_EVERY:  # it worked for a while
            wait = LISTEN_WAITS[0]
        await asyncio.sleep(wait)
        wait = min(2 * wait, longest)


def _wrong_encoding(database: str, encoding: str) -> str:
    return (
        f"the database {database} is in {encoding}, which cannot hold all text that GitHub sends: make another one by "
        f"`createdb --encoding=UTF8 --template=template0 NAME`, and name that in OOTBOT_DATABASE_URL"
    )


def _unreadable(error: PermissionError) -> str:
    return (
        f"this user may not read {error.filename}, where PostgreSQL's password and keys may be: "
        "set HOME to a folder of this user"
    )


def _nameless() -> str:
    return "this user has no name on this machine: put PostgreSQL's user into OOTBOT_DATABASE_URL"


def _connect_to(engine: AsyncEngine, server: PostgresServer) -> None:
    """Let the driver read the address itself for new connections."""

    def set_arguments(_dialect: object, _record: object, _args: object, parameters: dict[str, Any]) -> None:
        parameters.clear()
        parameters.update(server.arguments())

    sa.event.listen(engine.sync_engine, "do_connect", set_arguments)


def _check_liveness(engine: AsyncEngine, *, ping: bool) -> None:
    """Make the pool discard connections that have ended since their last use, and close without waiting.

    With `ping` the server must answer within PING_TIMEOUT first.
    """

    def check(connection: Any, _record: object, _proxy: object) -> None:
        if connection.driver_connection.is_closed():
            raise sa.exc.DisconnectionError
        if ping:
            timer = asyncio.get_running_loop().call_later(
                db_errors.PING_TIMEOUT, connection.driver_connection.terminate
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
    """Make PostgreSQL end transactions of a process that is frozen or whose machine is gone.

    It would notice neither for two hours, and their locks would block every other process.
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


async def _listen_on_connection(store: Store, connection: Any, watchdog: Watchdog) -> None:
    """Listen on asyncpg's connection; raises once it is lost."""
    lost = asyncio.Event()

    def on_notification(_connection: object, _pid: int, _channel: str, sender: str) -> None:
        if sender != store.name:  # our own commits set the event themselves
            store.work_waiting.set()

    def on_termination(_connection: object) -> None:
        lost.set()

    await connection.add_listener(CHANNEL, on_notification)
    connection.add_termination_listener(on_termination)
    store.work_waiting.set()  # something may have come before
    try:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(lost.wait(), CHECK_EVERY)
            await connection.execute("SELECT 1")
            watchdog.answered()
    finally:
        connection.remove_termination_listener(on_termination)
        connection.terminate()  # unusable for others while it listens, and to end that the server would have to answer
