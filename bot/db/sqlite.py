"""The connections to SQLite: in a process or thread that may wait for it, or with threads for what takes long.

Transactions and statements that run often go to the driver, others through SQLAlchemy.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sqlite3
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from bot.db.statements import Result, Statement, fetch_all

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from bot.db.statements import Compiled, Parameters

T = TypeVar("T")

MOST_STEPS = 20_000  # of SQLite's virtual machine for a read in the event loop: under a millisecond
SLOW = 0.005  # seconds: a read that takes so long may have waited for the disk
PAUSE = 20  # times as long the event loop reads nothing after such a one
READERS = 4  # threads for reads
USAGE = getattr(
    resource, "RUSAGE_THREAD", resource.RUSAGE_SELF
)  # of the thread alone, where the system counts it
NOT_HERE = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT})
LONGEST = 0.01  # seconds in which statements run in the loop's thread without a break
MOST_IDLE = 4  # connections that stay open: each has a page cache


class HandOver(Exception):
    """A statement has to be run in another thread."""


class Session:
    """SQLAlchemy's connection and the driver's; one transaction at a time."""

    def __init__(self, conn: sa.Connection) -> None:
        self.conn = conn
        self.driver: Any = conn.connection.dbapi_connection

    def execute(self, statement: sa.Executable | Statement, parameters: Parameters = None) -> Result:
        """Execute a statement; SQLAlchemy runs it where its events are listened to."""
        if not isinstance(statement, Statement):
            return fetch_all(self.conn.execute(statement, parameters))
        if self.conn.dispatch.before_cursor_execute:
            return fetch_all(self.conn.execute(statement.element, parameters))
        if parameters is None or isinstance(parameters, Mapping):
            given = parameters or {}
            return self._run(statement.compiled(given), given)
        return self._run_each(statement, parameters)

    def begin(self, *, reads: bool = False) -> None:
        """Begin a transaction, unless one has begun."""
        if not self.driver.in_transaction:
            # one that reads first and writes later would fail where another wrote in between
            begin = "BEGIN" if reads else "BEGIN IMMEDIATE"
            with self._errors(begin):
                self.driver.execute(begin)

    def commit(self) -> None:
        """Commit the transaction, if one has begun."""
        if self.conn.in_transaction():
            self.conn.commit()
        else:
            with self._errors("COMMIT"):
                self.driver.commit()

    def rollback(self) -> None:
        """Undo the transaction, if one has begun."""
        if self.conn.in_transaction():
            self.conn.rollback()
        else:
            with self._errors("ROLLBACK"):
                self.driver.rollback()

    def close(self) -> None:
        """Return the connection to its engine; what was not committed is undone."""
        self.conn.close()

    def _run(self, compiled: Compiled, given: Mapping[str, Any]) -> Result:
        sql, values = compiled.call(given)
        with self._errors(sql, values):
            cursor = self.driver.execute(sql, values)
            if cursor.description is not None:
                return compiled.read(cursor.description, cursor.fetchall())
            return Result((), (), cursor.rowcount)

    def _run_each(self, statement: Statement, several: Sequence[Mapping[str, Any]]) -> Result:
        if not several:
            return Result((), (), 0)
        compiled = statement.compiled(several[0])
        if compiled.returns_rows or compiled.has_lists:
            made = [self._run(compiled, given) for given in several]
            rows = [row for result in made for row in result.rows]
            return Result(made[0].names, rows, sum(result.rowcount for result in made))
        calls = [compiled.call(given) for given in several]
        sql, values = calls[0][0], [call[1] for call in calls]
        with self._errors(sql, values):
            return Result((), (), self.driver.executemany(sql, values).rowcount)

    @contextlib.contextmanager
    def _errors(self, sql: str, values: Any = ()) -> Iterator[None]:
        """Raise SQLAlchemy's error for the driver's."""
        try:
            yield
        except sqlite3.Error as error:
            kind = getattr(sa.exc, type(error).__name__, sa.exc.DBAPIError)
            raise kind(sql, values, error) from error


class Threads:
    """The threads that statements are handed to, and whether the event loop may read by itself."""

    def __init__(self) -> None:
        self._writing = ThreadPoolExecutor(1, "sqlite-write")  # the database has one writer at a time
        self._reading = ThreadPoolExecutor(READERS, "sqlite-read")
        self._paused_until = 0.0  # of the monotonic clock, in seconds
        self._blocks = 0  # read from the disk by the event loop's thread
        self.closed = False

    async def run(self, work: Callable[..., T], *arguments: Any, writes: bool) -> T:
        """Run `work` in another thread and return its result; even a cancelled caller waits for its end."""
        executor = self._writing if writes else self._reading
        running = asyncio.get_running_loop().run_in_executor(executor, work, *arguments)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            while not running.done():  # the connection is in use until then
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([running])
            if not running.cancelled():
                running.exception()  # nothing else asks for it
            raise

    def run_here(self, driver: DriverConnection, work: Callable[..., T], *arguments: Any, waits: bool) -> T:
        """Run `work` in this thread and return its result; raises HandOver where that takes long or has to wait."""
        began = time.monotonic()
        if began < self._paused_until:
            raise HandOver
        if not waits:
            driver.wait_for_others(False)
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


class DriverConnection(sqlite3.Connection):
    """The driver's connection, which waits for a lock of another process or fails at once."""

    _waits = True  # as long as it was opened to
    _patience = 0  # milliseconds; read when it is changed first

    def wait_for_others(self, wait: bool) -> None:
        """Set whether statements wait for another process's lock or fail at once."""
        if wait == self._waits:
            return
        if not wait and not self._patience:
            (self._patience,) = self.execute("PRAGMA busy_timeout").fetchone()
        self.execute(f"PRAGMA busy_timeout = {self._patience if wait else 0}")
        self._waits = wait


class Engine:
    """SQLAlchemy's synchronous engine; connections are reused as they are, since its pool takes 60 us for each."""

    def __init__(self, engine: sa.Engine, threads: Threads | None = None) -> None:
        self._engine = engine
        self._threads = threads
        self._idle: list[Session] = []
        self._until = 0.0  # when others in the loop are to run

    @contextlib.asynccontextmanager
    async def connect(self, *, reads: bool = False, answer_within: float = 0) -> AsyncIterator[Connection]:  # noqa: ARG002 - a file answers
        """Yield a connection; what is not committed at the end is rolled back."""
        await self._give_way()
        session = self._idle.pop() if self._idle else await self._open()
        try:
            yield Connection(session, self._threads, self._give_way if reads else None)
            session.rollback()
        except BaseException:
            session.close()  # its state may be the reason
            raise
        if len(self._idle) < MOST_IDLE:
            self._idle.append(session)
        else:
            session.close()

    async def _give_way(self) -> None:
        """Let other tasks run after statements have occupied the loop for long: statements themselves never yield."""
        if time.monotonic() >= self._until:
            await asyncio.sleep(0)
            self._until = time.monotonic() + LONGEST

    async def _open(self) -> Session:
        if self._threads is None:
            return Session(self._engine.connect())
        return Session(await self._threads.run(self._engine.connect, writes=False))

    def hang_up(self) -> None:
        """Do nothing: there is no server whose connection might hang."""

    async def dispose(self) -> None:
        """Close every connection that is not in use; may be called twice."""
        if self._threads is None:
            self._close()
        elif not self._threads.closed:
            await self._threads.run(self._close, writes=True)
            self._threads.close()

    def _close(self) -> None:
        while self._idle:
            self._idle.pop().close()
        self._engine.dispose()


class Connection:
    """A connection of that engine; a transaction begins with its first statement."""

    def __init__(
        self, session: Session, threads: Threads | None, between_reads: Callable[[], Awaitable[None]] | None
    ) -> None:
        self._session = session
        self._threads = threads
        self._only_reads = between_reads is not None
        self._between_reads = between_reads  # None: it may write, and hold a lock that others wait for
        self._wrote = False  # there may be something to commit

    async def execute(self, statement: sa.Executable | Statement, parameters: Parameters = None) -> Result:
        """Execute a statement once, or for each of several sets of parameters."""
        if self._between_reads is not None:
            await self._between_reads()
        if self._threads is None:
            self._session.begin(reads=self._only_reads)
            return self._session.execute(statement, parameters)
        work = partial(self._session.execute, statement, parameters)
        return await self._run(work, reads=statement.is_select)

    async def exec_driver_sql(self, statement: str, parameters: Any = None) -> Result:
        """Execute a statement in the driver's own SQL."""
        return await self._run(lambda: fetch_all(self._session.conn.exec_driver_sql(statement, parameters)))

    async def stream(self, statement: sa.Select[Any], *, size: int) -> AsyncIterator[Result]:
        """Execute a query and yield its rows, `size` at a time."""
        query = statement.execution_options(yield_per=size)
        cursor = await self._run(lambda: self._session.conn.execute(query))
        names, parts = tuple(cursor.keys()), cursor.partitions()
        while rows := await self._run(lambda: next(parts, ())):
            yield Result(names, rows, -1)

    async def run_sync(self, work: Callable[[sa.Connection], T]) -> T:
        """Call `work` with SQLAlchemy's connection and return its result."""
        return await self._run(partial(work, self._session.conn))

    @contextlib.asynccontextmanager
    async def begin(self) -> AsyncIterator[None]:
        """Commit the transaction of the block at its end, or roll it back on any error."""
        try:
            yield
            await self._end(self._session.commit)
        except BaseException:
            await self._end(self._session.rollback)
            raise

    def attempt(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Let one statement fail: SQLite undoes only that statement."""
        return contextlib.nullcontext()

    async def _end(self, end: Callable[[], None]) -> None:
        if self._wrote and self._threads is not None:
            await self._threads.run(end, writes=True)
        else:
            end()

    async def _run(self, work: Callable[[], T], *, reads: bool = False) -> T:
        """Run `work` and return its result; `reads`: it may be begun here, given up, and run again elsewhere."""
        if self._threads is None:
            return self._begun(work)
        if reads:
            waits = self._wrote  # it has the lock already
            with contextlib.suppress(HandOver):
                returned: T = self._threads.run_here(self._session.driver, self._begun, work, waits=waits)
                return returned
        writes = not (reads or self._only_reads)
        self._wrote |= writes
        return await self._threads.run(self._waiting, work, writes=writes)

    def _waiting(self, work: Callable[[], T]) -> T:
        self._session.driver.wait_for_others(True)
        return self._begun(work)

    def _begun(self, work: Callable[[], T]) -> T:
        self._session.begin(reads=self._only_reads)
        return work()


def _interrupt() -> int:
    """Return a progress handler that makes SQLite give up a statement."""
    return 1
