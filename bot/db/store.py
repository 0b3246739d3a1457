"""The database: opening and migrating it, transactions that write, snapshots that read."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from bot.core.errors import StoreUnavailable
from bot.core.setting_types import SCHEMES, read_address
from bot.db import db_errors, migrate, postgres
from bot.db.group_commit import SharedTransactions
from bot.db.postgres import PostgresServer
from bot.db.sqlite import DriverConnection, Threads
from bot.db.sqlite import Engine as SqliteEngine
from bot.db.statements import JSON_TEXT
from bot.db.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, MutableMapping, Sequence

    from bot.core.clock import Clock
    from bot.db.db_errors import Watchdog
    from bot.db.group_commit import Work
    from bot.db.statements import Connection, Engine
    from bot.db.transaction import BeforeCommit

# KB of the database in the memory of each connection; the default of 2 MB fragments the heap over hours
SQLITE_CACHE = 512
SQLITE_CACHE_LARGE = 2000  # where many deliveries are stored at once, and where pages read many rows
T = TypeVar("T")
BUSY_TIMEOUT = 5  # seconds a SQLite connection waits for another process
BUSY_PAUSE = 0.05  # seconds between two tries to open a file that another process is making
LOST_AFTER = 30.0  # seconds until PostgreSQL ends an idle transaction: as long as leases last
# seconds a write may wait for other writers while a request waits for it: GitHub waits 10 s
LOCK_TIMEOUT = 4.0


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
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


def make_engine(url: sa.URL, options: EngineOptions, *, inline: bool = False) -> Engine:
    """Return the engine of a store; `inline`: SQLite's statements run in the calling thread."""
    if url.get_backend_name() == "sqlite":
        return SqliteEngine(_sqlite(url, options, SQLITE_CACHE), None if inline else Threads())
    assert options.server
    return postgres.make_postgres_engine(options.server, lost_after=options.lost_after, **_shared(options))


def make_engine_for_other_loop(url: sa.URL, options: EngineOptions) -> Engine:
    """Return an engine to read with in another event loop, whose thread may wait for the database."""
    if url.get_backend_name() == "sqlite":
        return SqliteEngine(_sqlite(url, options, SQLITE_CACHE_LARGE))
    # idle for long, so only a ping shows which connections the server has closed meanwhile
    assert options.server
    return postgres.make_postgres_engine(options.server, lost_after=None, ping=True, **_shared(options))


def configure_sqlite(connection: Any, cache: int = SQLITE_CACHE) -> None:
    """Set up one connection of SQLite's driver with a page cache of `cache` KB."""
    connection.isolation_level = None  # only a Session begins transactions
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"cache_size=-{cache}"):
        connection.execute(f"PRAGMA {pragma}")


class Store:
    """The database. Open it once, close it at the end; `transaction` changes it, `read` does not."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        busy_timeout: float = BUSY_TIMEOUT,
        lost_after: float = LOST_AFTER,
        before_commit: Sequence[BeforeCommit] = (),
        inline: bool = False,
        compiled: MutableMapping[Any, Any] | None = None,
    ) -> None:
        self.url = parse_url(url)
        self.clock = clock
        self.sqlite = self.url.get_backend_name() == "sqlite"
        self.name = secrets.token_hex(8)  # of this process among those that share the database
        self.work_waiting = asyncio.Event()  # set whenever a commit, here or elsewhere, may have left work
        self._before_commit = tuple(before_commit)
        self._kept: dict[str, Any] = {}  # of committed rows, by slot
        self._busy_timeout = busy_timeout
        self._options = EngineOptions(
            busy_timeout=busy_timeout,
            lost_after=lost_after,
            compiled=compiled,
            server=None if self.sqlite else PostgresServer(url, self.url),
        )
        self._engine = make_engine(self.url, self._options, inline=inline)
        self._other_readers: dict[asyncio.AbstractEventLoop, Engine] = {}
        self._writer = asyncio.Lock()
        self._shared = SharedTransactions(self.transaction)
        self.failure: tuple[int, str] | None = None  # when a write failed and why, until a delivery is stored
        self._file: tuple[int, int] | None = None

    async def open(self) -> None:
        """Bring the schema up to date.

        Raises Misconfigured where this version cannot use the schema, StoreUnavailable where nothing can.
        """
        try:
            if self.sqlite:
                await asyncio.to_thread(self._check_file)
            with db_errors.translated(self.url):
                await migrate.bring_up_to_date(self._engine)
        except BaseException:
            await self.close()
            raise
        if self.sqlite:
            self._file = file_identity(self.url.database)

    async def close(self) -> None:
        """Close every connection, without waiting for PostgreSQL."""
        self.hang_up()
        await self._engine.dispose()

    def hang_up(self) -> None:
        """Drop the PostgreSQL connections in use in the store's own loop: nothing begun on them is committed."""
        self._engine.hang_up()

    @contextlib.asynccontextmanager
    async def transaction(self, *, lock_timeout: float | None = None) -> AsyncIterator[Transaction]:
        """One transaction: committed at the end, rolled back on any error.

        With `lock_timeout` it fails when other writers keep it waiting for so many seconds: on SQLite until it
        begins, on PostgreSQL for any lock, or when PostgreSQL does not answer for a second more.
        """
        try:
            with db_errors.translated(self.url):
                self.require_file()
                within = db_errors.BACKGROUND_TIMEOUT if lock_timeout is None else lock_timeout + 1
                connected = self._engine.connect(answer_within=within)
                async with self.writer_lock(lock_timeout), connected as conn, conn.begin():
                    tx = self._begun(conn)
                    if lock_timeout is not None and not self.sqlite:
                        await tx.run(sa.text(f"SET LOCAL lock_timeout = {round(lock_timeout * 1000)}"))
                    yield tx
                    await tx.run_before_commit()
                    if tx.wakes_workers and not self.sqlite:
                        await tx.run(postgres.wake_up_statement(self.name))
        except StoreUnavailable as error:
            self.note_outcome(error)
            raise
        if tx.wakes_workers:
            self.work_waiting.set()

    async def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction and return its result, once committed.

        On SQLite, which has one writer, it may be shared with others: `work` does nothing but write rows, and may be
        called twice. On PostgreSQL, where two that lock the same rows in another order would wait for each other, it
        has its own.
        """
        if self.sqlite:
            return await self._shared.run(work)
        async with self.transaction() as tx:
            return await work(tx)

    async def drain(self) -> None:
        """Wait until no call of `write` is in progress, not even for a caller that was cancelled."""
        await self._shared.drain()

    @contextlib.asynccontextmanager
    async def read(
        self, *, answer_within: float = db_errors.BACKGROUND_TIMEOUT
    ) -> AsyncIterator[Transaction]:
        """One consistent snapshot; writes in it are refused by PostgreSQL and undone by SQLite.

        It fails when PostgreSQL does not answer for so many seconds; REQUEST_TIMEOUT in other loops, where pages
        are rendered.
        """
        with db_errors.translated(self.url):
            self.require_file()
            other = self._other_readers.get(asyncio.get_running_loop())
            within = answer_within if other is None else db_errors.REQUEST_TIMEOUT
            async with (other or self._engine).connect(reads=True, answer_within=within) as conn:
                yield self._begun(conn)

    def _begun(self, conn: Connection) -> Transaction:
        return Transaction(
            conn,
            now=self.clock.now(),
            sqlite=self.sqlite,
            before_commit=self._before_commit,
            kept=self._kept,
        )

    def read_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Allow `read` in another thread's event loop, too: a connection belongs to one loop."""
        self._other_readers[loop] = make_engine_for_other_loop(self.url, self._options)

    async def stop_reading(self) -> None:
        """Close the connections that `read` opened in the running loop, which is not the store's own."""
        await self._other_readers.pop(asyncio.get_running_loop()).dispose()

    @contextlib.asynccontextmanager
    async def connection(self, *, answer_within: float) -> AsyncIterator[tuple[Any, Watchdog]]:
        """PostgreSQL only: asyncpg's own connection, outside any transaction, and its watchdog."""
        assert isinstance(self._engine, postgres.Engine)
        with db_errors.translated(self.url):
            async with self._engine.driver_connection(self.url, answer_within) as (connection, watchdog):
                yield connection, watchdog

    @contextlib.asynccontextmanager
    async def writer_lock(self, wait: float | None = None) -> AsyncIterator[None]:
        """Hold the lock of this process's only writer, waited for at most `wait` seconds; SQLite only."""
        if not self.sqlite:
            yield
            return
        try:
            async with asyncio.timeout(wait):
                await self._writer.acquire()
        except TimeoutError:
            reason = f"other writes have kept the database for over {wait:g} s; look at its disk"
            raise StoreUnavailable(reason) from None
        try:
            yield
        finally:
            self._writer.release()

    def note_outcome(self, outcome: object) -> None:
        """Remember whether the last write failed, for health checks."""
        self.failure = (self.clock.now(), str(outcome)) if isinstance(outcome, StoreUnavailable) else None

    def require_file(self) -> None:
        """Raise StoreUnavailable when SQLite's file is gone: it would go on writing to a deleted file."""
        if self._file is not None and file_identity(self.url.database) != self._file:
            name = self.url.database
            raise StoreUnavailable(
                f"{name} is gone or was replaced: put it back, or start with what is there"
            )

    def _check_file(self) -> None:
        """Raise StoreUnavailable when the file cannot be opened: the driver's thread would outlive its loop.

        Only its owner may read a new one and the files SQLite puts beside it: it holds the key of the callback tokens.
        """
        with contextlib.suppress(OSError):  # it exists, or SQLite reports what is wrong
            Path(self.url.database or "").touch(mode=0o600, exist_ok=False)
        until = time.monotonic() + self._busy_timeout
        while True:
            try:
                return self.connect_sqlite().close()
            except sqlite3.Error as error:
                # SQLite does not wait by itself while another process switches a new file to its log
                busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() > until:
                    raise db_errors.unavailable(self.url, error) from error
                time.sleep(BUSY_PAUSE)

    def connect_sqlite(self, file: Path | None = None) -> sqlite3.Connection:
        """SQLite only: a connection of the standard library, for one thread of its own; to another `file` beside it."""
        path = file or self.url.database or ""
        connection = sqlite3.connect(
            path, timeout=self._busy_timeout, isolation_level=None, check_same_thread=False
        )
        configure_sqlite(connection, SQLITE_CACHE_LARGE)
        return connection


def file_identity(path: str | Path | None) -> tuple[int, int] | None:
    """Return what identifies a file, None when there is none."""
    try:
        status = os.stat(path or "")  # noqa: PTH116 - before every commit; a Path takes twice as long
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _sqlite(url: sa.URL, options: EngineOptions, cache: int) -> sa.Engine:
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
    """Begin transactions that SQLAlchemy begins implicitly, such as a migration's after its first commit."""
    driver: Any = conn.connection.dbapi_connection
    if not driver.in_transaction:
        conn.exec_driver_sql("BEGIN IMMEDIATE")


def _shared(options: EngineOptions) -> dict[str, Any]:
    cache = {} if options.compiled is None else {"compiled_cache": options.compiled}
    return {**JSON_TEXT, "execution_options": cache}
