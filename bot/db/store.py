"""The database: opening and migrating it, transactions that write, snapshots that read.

SQLite runs in WAL mode with synchronous=FULL: a commit survives a power cut. It has one writer at a time, so writers
queue here, in order, instead of polling its lock. PostgreSQL needs no such queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from bot.core.errors import StoreUnavailable
from bot.db import connection_watchdog, db_errors, engines, migrate, notify, postgres
from bot.db.postgres_server import PostgresServer
from bot.db.shared_transactions import SharedTransactions
from bot.db.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, MutableMapping, Sequence

    from bot.core.clock import Clock
    from bot.db.connection import Connection, Engine
    from bot.db.connection_watchdog import Watchdog
    from bot.db.shared_transactions import Work
    from bot.db.transaction import BeforeCommit

T = TypeVar("T")
BUSY_TIMEOUT = 5  # seconds a SQLite connection waits for another process
BUSY_PAUSE = 0.05  # seconds between two tries to open a file that another process is making
LOST_AFTER = 30.0  # seconds until PostgreSQL ends an idle transaction: as long as leases last
LOCK_TIMEOUT = (
    4.0  # seconds a write may wait for other writers while a request waits for it: GitHub waits 10 s
)


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
        self.url = engines.parse_url(url)
        self.clock = clock
        self.sqlite = self.url.get_backend_name() == "sqlite"
        self.name = secrets.token_hex(8)  # of this process among those that share the database
        self.work_waiting = asyncio.Event()  # set whenever a commit, here or elsewhere, may have left work
        self._before_commit = tuple(before_commit)
        self._kept: dict[str, Any] = {}  # of committed rows, by slot
        self._busy_timeout = busy_timeout
        self._options = engines.Options(
            busy_timeout=busy_timeout,
            lost_after=lost_after,
            compiled=compiled,
            server=None if self.sqlite else PostgresServer(url, self.url),
        )
        self._engine = engines.make(self.url, self._options, inline=inline)
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
        """Drop PostgreSQL connections in use in the store's own loop: nothing that was begun on them is committed."""
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
                within = connection_watchdog.BACKGROUND_TIMEOUT if lock_timeout is None else lock_timeout + 1
                connected = self._engine.connect(answer_within=within)
                async with self.writer_lock(lock_timeout), connected as conn, conn.begin():
                    tx = self._begun(conn)
                    if lock_timeout is not None and not self.sqlite:
                        await tx.run(sa.text(f"SET LOCAL lock_timeout = {round(lock_timeout * 1000)}"))
                    yield tx
                    await tx.run_before_commit()
                    if tx.wakes_workers and not self.sqlite:
                        await tx.run(notify.notification(self.name))
        except StoreUnavailable as error:
            self.note_outcome(error)
            raise
        if tx.wakes_workers:
            self.work_waiting.set()

    async def write(self, work: Work[T]) -> T:
        """Return what `work` returns for a transaction, once that is committed.

        On SQLite, which has one writer, it may be shared with others: `work` does nothing but write rows, and may be
        called twice. On PostgreSQL, where two that lock the same rows in another order would wait for each other, it
        has its own.
        """
        if self.sqlite:
            return await self._shared.run(work)
        async with self.transaction() as tx:
            return await work(tx)

    async def drain(self) -> None:
        """Return once nothing is being written for those who called `write`, even if they were cancelled."""
        await self._shared.drain()

    @contextlib.asynccontextmanager
    async def read(
        self, *, answer_within: float = connection_watchdog.BACKGROUND_TIMEOUT
    ) -> AsyncIterator[Transaction]:
        """One consistent snapshot; writes in it are refused by PostgreSQL and undone by SQLite.

        It fails when PostgreSQL does not answer for so many seconds; REQUEST_TIMEOUT in other loops, where pages
        are rendered.
        """
        with db_errors.translated(self.url):
            self.require_file()
            other = self._other_readers.get(asyncio.get_running_loop())
            within = answer_within if other is None else connection_watchdog.REQUEST_TIMEOUT
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
        """Let `read` also be used in another thread's event loop: a connection belongs to one loop."""
        self._other_readers[loop] = engines.for_other_loop(self.url, self._options)

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
        """Raise StoreUnavailable when it cannot be opened: the asynchronous driver's thread would outlive its loop.

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
        engines.configure_sqlite(connection, engines.SQLITE_CACHE_LARGE)
        return connection


def file_identity(path: str | Path | None) -> tuple[int, int] | None:
    """Return what identifies a file, None when there is none."""
    try:
        found = os.stat(path or "")  # noqa: PTH116 - before every commit; a Path takes twice as long
    except OSError:
        return None
    return found.st_dev, found.st_ino
