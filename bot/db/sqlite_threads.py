"""SQLite for an event loop that answers requests: what may wait for the disk or a lock runs in other threads.

That is writes, commits and long reads. Handing a statement over takes longer than most of our reads do, so the event
loop begins each itself, gives it up within a millisecond, and only then hands it over. After a read for which the disk
was slow, all are handed over for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sqlite3
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from bot.db import sqlite_inline
from bot.db.sqlite_session import Session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

T = TypeVar("T")

MOST_STEPS = 20_000  # of SQLite's virtual machine for a read in the event loop: under a millisecond
SLOW = 0.005  # seconds: a read that takes so long may have waited for the disk
PAUSE = 20  # times as long the event loop reads nothing after such a one
READERS = 4  # threads for reads
USAGE = getattr(
    resource, "RUSAGE_THREAD", resource.RUSAGE_SELF
)  # of the thread alone, where the system counts it
NOT_HERE = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT})


class HandOver(Exception):
    """A statement has to be run in another thread."""


class Threads:
    """The threads that statements are handed to, and whether the event loop may read by itself."""

    def __init__(self) -> None:
        self._writing = ThreadPoolExecutor(1, "sqlite-write")  # the database has one writer at a time
        self._reading = ThreadPoolExecutor(READERS, "sqlite-read")
        self._paused_until = 0.0  # of the monotonic clock, in seconds
        self._blocks = 0  # read from the disk by the event loop's thread
        self.closed = False

    async def run(self, work: Callable[..., T], *arguments: Any, writes: bool) -> T:
        """Return what `work` returns in another thread; a caller that is cancelled waits for its end all the same."""
        executor = self._writing if writes else self._reading
        running = asyncio.get_running_loop().run_in_executor(executor, work, *arguments)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            while not running.done():  # the connection is in use until then
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([running])
            if not running.cancelled():
                running.exception()  # nobody else asks for it
            raise

    def run_here(self, driver: DriverConnection, work: Callable[..., T], *arguments: Any) -> T:
        """Return what `work` returns in this thread; raises HandOver where that takes long or has to wait."""
        began = time.monotonic()
        if began < self._paused_until:
            raise HandOver
        driver.set_progress_handler(_interrupt, MOST_STEPS)
        try:
            return work(*arguments)
        except sa.exc.OperationalError as error:
            if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in NOT_HERE:
                raise HandOver from error
            raise
        finally:
            driver.set_progress_handler(None, 0)
            if (took := time.monotonic() - began) > SLOW:
                self._note_slow(began, took)

    def _note_slow(self, began: float, took: float) -> None:
        blocks = resource.getrusage(USAGE).ru_inblock
        if blocks > self._blocks:  # otherwise others had the processor
            self._paused_until = began + took * PAUSE
        self._blocks = blocks

    def close(self) -> None:
        """End the threads, once they have nothing to do."""
        self.closed = True
        self._writing.shutdown(wait=False)
        self._reading.shutdown(wait=False)


def _interrupt() -> int:
    """Return what has SQLite give a statement up."""
    return 1


class Engine(sqlite_inline.Engine):
    """SQLAlchemy's synchronous engine and those threads; its connections are of the driver's class below."""

    def __init__(self, engine: sa.Engine, threads: Threads | None = None) -> None:
        super().__init__(engine)
        self._threads = threads or Threads()

    def execution_options(self, **options: Any) -> Engine:
        """Return an engine with these options and the same connections and threads."""
        return Engine(self._engine.execution_options(**options), self._threads)

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        """Yield a connection; what is not committed at the end is rolled back."""
        pool: Any = self._engine.pool
        if not pool.checkedin():  # a new one opens files
            await self._threads.run(self._open_one, writes=False)
        with self._engine.connect() as conn:
            yield Connection(Session(conn), self._threads)

    def _open_one(self) -> None:
        self._engine.connect().close()

    async def dispose(self) -> None:
        """Close every connection; once more does nothing."""
        if not self._threads.closed:
            await self._threads.run(self._engine.dispose, writes=True)
            self._threads.close()


class Connection(sqlite_inline.Connection):
    """A connection of that engine; a transaction begins with its first statement."""

    def __init__(self, session: Session, threads: Threads) -> None:
        super().__init__(session)
        self._threads = threads
        self._driver: Any = session.conn.connection.driver_connection
        self._only_reads = bool(session.conn.get_execution_options().get("ootbot_read"))
        self._wrote = False  # there may be something to commit

    @contextlib.asynccontextmanager
    async def begin(self) -> AsyncIterator[None]:
        """Commit at the end what was begun with the first statement, or roll it back."""
        try:
            yield
            await self._end(self._session.commit)
        except BaseException:
            await self._end(self._session.rollback)
            raise

    async def _end(self, end: Callable[[], None]) -> None:
        if self._wrote:
            await self._threads.run(end, writes=True)
        else:
            end()

    async def execute(self, statement: Any, parameters: Any = None) -> sa.CursorResult[Any]:
        """Execute one statement."""
        work = partial(self._session.execute, statement, parameters)
        return await self._run(work, reads=statement.is_select)

    async def rows(self, statement: Any, parameters: Any = None) -> list[dict[str, Any]]:
        """Execute a query and return its rows as dictionaries."""
        work = partial(self._session.rows, statement, parameters)
        return await self._run(work, reads=statement.is_select)

    async def exec_driver_sql(self, statement: str, parameters: Any = None) -> sa.CursorResult[Any]:
        """Execute one statement in the driver's own SQL."""
        return await self._run(partial(self._session.conn.exec_driver_sql, statement, parameters))

    async def stream(self, statement: Any) -> Result:
        """Execute one statement whose rows are fetched in parts."""
        work = partial(self._session.conn.execute, statement)
        self._driver.fetches = False
        try:
            made = await self._threads.run(self._waiting, work, writes=False)
        finally:
            self._driver.fetches = True
        return Result(made, self._threads)

    async def run_sync(self, work: Callable[[sa.Connection], T]) -> T:
        """Return what `work` returns for the connection itself."""
        return await self._run(partial(work, self._session.conn))

    async def _run(self, work: Callable[[], T], *, reads: bool = False) -> T:
        if reads:
            if not self._wrote:  # otherwise it has the lock already
                self._driver.wait_for_others(False)
            with contextlib.suppress(HandOver):
                found: T = self._threads.run_here(self._driver, self._begun, work)
                return found
        writes = not (reads or self._only_reads)
        self._wrote |= writes
        return await self._threads.run(self._waiting, work, writes=writes)

    def _waiting(self, work: Callable[[], T]) -> T:
        self._driver.wait_for_others(True)
        return self._begun(work)

    def _begun(self, work: Callable[[], T]) -> T:
        self._session.begin()
        return work()


class Result(sqlite_inline.Result):
    """Rows fetched in parts, in another thread."""

    def __init__(self, result: sa.CursorResult[Any], threads: Threads) -> None:
        super().__init__(result)
        self._threads = threads

    async def partitions(self) -> AsyncIterator[Sequence[sa.Row[Any]]]:
        """Yield the rows in parts of the statement's `yield_per`."""
        parts = self._result.partitions()
        while part := await self._threads.run(next, parts, None, writes=False):
            yield part


class DriverConnection(sqlite3.Connection):
    """The driver's connection: the rows of a statement are fetched in the thread that executes it."""

    fetches = True
    _waits = True  # for other processes, as long as it was opened to
    _patience = 0  # milliseconds; read when it is changed first

    def wait_for_others(self, wait: bool) -> None:
        """Have statements wait for a lock of another process, or fail at once."""
        if wait == self._waits:
            return
        plain = super().cursor()
        if not wait and not self._patience:
            (self._patience,) = plain.execute("PRAGMA busy_timeout").fetchone()
        plain.execute(f"PRAGMA busy_timeout = {self._patience if wait else 0}")
        self._waits = wait

    def cursor(self, *_: Any) -> Cursor:  # type: ignore[override]
        """Return a cursor."""
        return super().cursor(Cursor)


class Cursor(sqlite3.Cursor):
    """A statement and, unless they are to be fetched in parts, all its rows."""

    _rows: deque[Any] | None = None

    def execute(self, *arguments: Any) -> Cursor:
        """Execute a statement."""
        super().execute(*arguments)
        connection: Any = self.connection
        self._rows = deque(super().fetchall()) if connection.fetches and self.description else None
        return self

    def fetchone(self) -> Any:
        """Return the next row, None after the last."""
        if self._rows is None:
            return super().fetchone()
        return self._rows.popleft() if self._rows else None

    def fetchall(self) -> list[Any]:
        """Return all rows that are left."""
        if self._rows is None:
            return super().fetchall()
        rows, self._rows = list(self._rows), deque()
        return rows

    def fetchmany(self, size: int | None = 1) -> list[Any]:
        """Return the next rows."""
        if self._rows is None:
            return super().fetchmany(size)
        return [self._rows.popleft() for _ in range(min(size or 1, len(self._rows)))]
