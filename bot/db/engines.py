"""SQLAlchemy's engines, set up for SQLite and for PostgreSQL."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import msgspec
import sqlalchemy as sa

from bot.db import connection_watchdog, sqlite_inline, sqlite_threads
from bot.db.sqlite_session import Session

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

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
    return url


def make(url: sa.URL, busy_timeout: float, lost_after: float, *, inline: bool = False) -> AsyncEngine:
    """Return the engine; `busy_timeout`: seconds SQLite waits for another process.

    `lost_after`: seconds after which PostgreSQL ends an idle transaction. `inline`: SQLite runs in the calling thread.
    """
    if _is_sqlite(url) and inline:
        return _inline(url, busy_timeout, SQLITE_CACHE)
    if _is_sqlite(url):
        driver = {"factory": sqlite_threads.DriverConnection, "check_same_thread": False}
        made = sqlite_threads.Engine(_sqlite(url, busy_timeout, SQLITE_CACHE, **driver))
        return cast("AsyncEngine", made)  # all that a store needs of one
    return _with_idle_timeout(_with_liveness_check(_postgres(url, busy_timeout)), lost_after)


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
        return read_only(_with_liveness_check(_postgres(url, busy_timeout), ping=True))
    return read_only(_inline(url, busy_timeout, SQLITE_CACHE_LARGE))


def _inline(url: sa.URL, busy_timeout: float, cache: int) -> AsyncEngine:
    return cast("AsyncEngine", sqlite_inline.Engine(_sqlite(url, busy_timeout, cache)))


def _postgres(url: sa.URL, busy_timeout: float) -> AsyncEngine:
    # brings SQLAlchemy's ORM with it, a tenth of the time a start takes
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415

    return create_async_engine(url, **_options(url, busy_timeout))


def _sqlite(url: sa.URL, busy_timeout: float, cache: int, **driver: Any) -> sa.Engine:
    options = _options(url, busy_timeout)
    options["connect_args"] |= driver
    # waiting for a connection would keep its users from giving theirs back
    engine = sa.create_engine(url, **options | {"max_overflow": -1})
    sa.event.listen(engine, "connect", lambda connection, _record: configure_sqlite(connection, cache))
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def configure_sqlite(connection: Any, cache: int = SQLITE_CACHE) -> None:
    """Set up one connection of SQLite's driver with a page cache of `cache` KB."""
    connection.isolation_level = None  # only a Session begins transactions
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"cache_size=-{cache}"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(conn: sa.Connection) -> None:
    Session(conn).begin()


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
        few = {"pool_size": 4, "pool_use_lifo": True}
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
