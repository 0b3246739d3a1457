"""The engines of a store: to SQLite, where statements may wait or not, and to PostgreSQL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.core.database_url import SCHEMES, read_address
from bot.db import postgres
from bot.db.sqlite_engine import Engine as SqliteEngine
from bot.db.sqlite_threads import DriverConnection, Threads
from bot.db.statements import JSON_TEXT

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from bot.db.connection import Engine
    from bot.db.postgres_server import PostgresServer

# KB of the database in the memory of each connection; the default of 2 MB fragments the heap over hours
SQLITE_CACHE = 512
SQLITE_CACHE_LARGE = 2000  # where many deliveries are stored at once, and where pages read many rows


@dataclass(frozen=True, kw_only=True)
class Options:
    """How the engines of a store behave."""

    busy_timeout: float  # seconds SQLite waits for another process
    lost_after: float  # seconds after which PostgreSQL ends an idle transaction
    compiled: MutableMapping[Any, Any] | None = None  # SQLAlchemy's compiled statements; None: of each engine
    server: PostgresServer | None = None  # where the database is not SQLite


def parse_url(url: str) -> sa.URL:
    """Return the parts of a database's URL: of several hosts, all in one text."""
    if not url.startswith(SCHEMES):
        return sa.make_url(url)
    address = read_address(url)
    host, port = address.hosts, None
    if single := re.fullmatch(r"(.*[^:]|):(\d+)", address.hosts):
        host, port = (single[1], int(single[2])) if "," not in address.hosts else (address.hosts, None)
    return sa.URL.create(
        "postgresql+asyncpg",
        username=address.user or None,
        password=address.password,
        host=host.removeprefix("[").removesuffix("]") or None,
        port=port,
        database=address.database or None,
        query=address.query,
    )


def make(url: sa.URL, options: Options, *, inline: bool = False) -> Engine:
    """Return the engine of a store; `inline`: SQLite's statements run in the calling thread."""
    if url.get_backend_name() == "sqlite":
        return SqliteEngine(_sqlite(url, options, SQLITE_CACHE), None if inline else Threads())
    assert options.server
    return postgres.make(options.server, lost_after=options.lost_after, **_shared(options))


def for_other_loop(url: sa.URL, options: Options) -> Engine:
    """Return an engine to read with in another event loop, whose thread may wait for the database."""
    if url.get_backend_name() == "sqlite":
        return SqliteEngine(_sqlite(url, options, SQLITE_CACHE_LARGE))
    # idle for long, so only a ping shows which connections the server has closed meanwhile
    assert options.server
    return postgres.make(options.server, lost_after=None, ping=True, **_shared(options))


def configure_sqlite(connection: Any, cache: int = SQLITE_CACHE) -> None:
    """Set up one connection of SQLite's driver with a page cache of `cache` KB."""
    connection.isolation_level = None  # only a Session begins transactions
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"cache_size=-{cache}"):
        connection.execute(f"PRAGMA {pragma}")


def _sqlite(url: sa.URL, options: Options, cache: int) -> sa.Engine:
    driver = {
        "timeout": options.busy_timeout,
        "factory": DriverConnection,
        "check_same_thread": False,
    }
    # each has a page cache: few stay open, the last one used is used again first, and none is waited for, since that
    # would keep its users from giving theirs back
    pool: dict[str, Any] = {"pool_size": 4, "pool_use_lifo": True, "max_overflow": -1}
    engine = sa.create_engine(url, connect_args=driver, **pool, **_shared(options))
    sa.event.listen(engine, "connect", lambda connection, _record: configure_sqlite(connection, cache))
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _begin_sqlite(conn: sa.Connection) -> None:
    """Begin what SQLAlchemy begins by itself, as a migration does after its first commit."""
    driver: Any = conn.connection.dbapi_connection
    if not driver.in_transaction:
        conn.exec_driver_sql("BEGIN IMMEDIATE")


def _shared(options: Options) -> dict[str, Any]:
    cache = {} if options.compiled is None else {"compiled_cache": options.compiled}
    return {**JSON_TEXT, "execution_options": cache}
