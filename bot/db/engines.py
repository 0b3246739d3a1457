"""SQLAlchemy's engines, set up for SQLite and for PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from bot.db import connection_watchdog, sqlite_driver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

T = TypeVar("T")
E = TypeVar("E", sa.Engine, AsyncEngine)
# by default PostgreSQL gives every statement a snapshot of its own
SNAPSHOT = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
# KB of the database in the memory of each connection; the default of 2 MB fragments the heap over hours
SQLITE_CACHE = 512
SQLITE_CACHE_LARGE = 2000  # where many deliveries are stored at once, and where pages read many rows


def async_url(url: str) -> str:
    """Return the URL with the asynchronous driver of its database."""
    for scheme in ("postgresql://", "postgres://"):
        if url.startswith(scheme):
            return "postgresql+asyncpg://" + url.removeprefix(scheme)
    return url.replace("sqlite://", "sqlite+aiosqlite://", 1) if url.startswith("sqlite://") else url


def make(url: sa.URL, busy_timeout: float, lost_after: float) -> AsyncEngine:
    """Return the engine; `busy_timeout`: seconds SQLite waits for another process.

    `lost_after`: seconds after which PostgreSQL ends an idle transaction.
    """
    if _is_sqlite(url):
        return _with_pragmas(
            create_async_engine(url, module=sqlite_driver.Driver(), **_options(url, busy_timeout))
        )
    engine = create_async_engine(url, **_options(url, busy_timeout))
    return _with_idle_timeout(_with_liveness_check(engine), lost_after)


def read_only(engine: AsyncEngine) -> AsyncEngine:
    """Return the engine for read-only transactions, each one consistent snapshot."""
    snapshot = {} if _is_sqlite(engine.url) else SNAPSHOT
    return engine.execution_options(ootbot_read=True, **snapshot)


def for_other_loop(url: sa.URL, busy_timeout: float) -> AsyncEngine:
    """Return a read-only engine for another event loop, whose thread may block on the database.

    SQLite's asynchronous driver hands every statement to one more thread, which takes longer than most of our
    statements.
    """
    if not _is_sqlite(url):
        # idle for long, so only a ping shows which connections the server has closed meanwhile
        return read_only(
            _with_liveness_check(create_async_engine(url, **_options(url, busy_timeout)), ping=True)
        )
    engine = sa.create_engine(url.set(drivername="sqlite"), **_options(url, busy_timeout))
    inline = InlineEngine(_with_pragmas(engine, SQLITE_CACHE_LARGE).execution_options(ootbot_read=True))
    return cast("AsyncEngine", inline)  # all that reading needs of one


class InlineEngine:
    """SQLite in the calling thread: what `Store.read` needs of an engine."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[InlineConnection]:
        """Yield a connection; rolled back at the end."""
        with self._engine.connect() as conn:
            yield InlineConnection(conn)

    async def dispose(self) -> None:
        """Close every connection."""
        self._engine.dispose()


class InlineConnection:
    """What a transaction that only reads needs of a connection."""

    def __init__(self, conn: sa.Connection) -> None:
        self._conn = conn

    async def execute(self, statement: Any, parameters: Any = None) -> sa.CursorResult[Any]:
        """Execute one statement."""
        return self._conn.execute(statement, parameters)

    async def stream(self, statement: Any) -> InlineResult:
        """Execute one statement whose rows are fetched in parts."""
        return InlineResult(self._conn.execute(statement))

    async def run_sync(self, work: Callable[[sa.Connection], T]) -> T:
        """Return what `work` returns for the connection itself."""
        return work(self._conn)


class InlineResult:
    """Rows fetched in parts: what `Transaction.slices` needs of a result."""

    def __init__(self, result: sa.CursorResult[Any]) -> None:
        self._result = result

    def keys(self) -> Iterable[str]:
        """Return the columns' names."""
        return self._result.keys()

    async def partitions(self) -> AsyncIterator[Sequence[sa.Row[Any]]]:
        """Yield the rows in parts of the statement's `yield_per`."""
        for part in self._result.partitions():
            yield part


def configure_sqlite(connection: Any, cache: int = SQLITE_CACHE) -> None:
    """Set up one connection of SQLite's driver with a page cache of `cache` KB."""
    connection.isolation_level = None  # only _begin_sqlite begins transactions
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"cache_size=-{cache}"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: sa.Connection) -> None:
    reads = connection.get_execution_options().get("ootbot_read")
    # a transaction that reads first and writes later would fail where another wrote in between
    statement = "BEGIN" if reads else "BEGIN IMMEDIATE"
    driver: Any = connection.connection.dbapi_connection
    if isinstance(driver, sqlite_driver.Connection):
        driver.begin(statement)
    else:
        connection.exec_driver_sql(statement)


def _with_pragmas(engine: E, cache: int = SQLITE_CACHE) -> E:
    target = getattr(engine, "sync_engine", engine)
    sa.event.listen(target, "connect", lambda connection, _record: configure_sqlite(connection, cache))
    sa.event.listen(target, "begin", _begin_sqlite)
    return engine


def _with_liveness_check(engine: AsyncEngine, *, ping: bool = False) -> AsyncEngine:
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
    return engine


def _with_idle_timeout(engine: AsyncEngine, lost_after: float) -> AsyncEngine:
    """Have PostgreSQL end transactions of a process that is frozen or whose machine is gone.

    By itself it notices neither for two hours, and their locks would block every other process.
    """
    limit = f"SELECT set_config('idle_in_transaction_session_timeout', '{round(lost_after * 1000)}', false)"

    def set_limit(connection: Any, _record: object) -> None:
        # not as a connection option: PgBouncer supports few
        cursor = connection.cursor()
        cursor.execute(limit)
        cursor.close()
        connection.commit()

    sa.event.listen(engine.sync_engine, "connect", set_limit)
    return engine


def _options(url: sa.URL, busy_timeout: float) -> dict[str, Any]:
    json = {"json_serializer": _to_json, "json_deserializer": msgspec.json.decode}
    if _is_sqlite(url):
        # each has a page cache: few stay open, and the last one used is reused first
        few = {"pool_size": 4, "max_overflow": 12, "pool_use_lifo": True}
        return json | few | {"connect_args": {"timeout": busy_timeout}}
    return json | {
        "pool_size": 10,
        "max_overflow": 10,
        "pool_timeout": 5,
        "connect_args": {"timeout": connection_watchdog.CONNECT_TIMEOUT},
    }


def _is_sqlite(url: sa.URL) -> bool:
    return url.get_backend_name() == "sqlite"


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
