"""The connections to SQLite, in a process or thread that may wait for it, or with threads for what takes long.

Handing a statement to another thread takes longer than most of our statements do. A worker's process and the thread
that renders pages run each where they are; an event loop that answers requests hands over (`sqlite_threads`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from bot.db.connection import Result, fetch_all
from bot.db.sqlite_session import Session
from bot.db.sqlite_threads import HandOver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    import sqlalchemy as sa

    from bot.db.connection import Parameters
    from bot.db.sqlite_threads import Threads
    from bot.db.statements import Statement

T = TypeVar("T")
LONGEST = 0.01  # seconds in which statements run in the loop's thread without a break
MOST_IDLE = 4  # connections that stay open: each has a page cache


class Engine:
    """SQLAlchemy's synchronous engine; connections are used again as they are, since its pool takes 60 us for each."""

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
        """Let others in the loop run where statements have run there for long: they wait for nothing by themselves."""
        if time.monotonic() >= self._until:
            await asyncio.sleep(0)
            self._until = time.monotonic() + LONGEST

    async def _open(self) -> Session:
        if self._threads is None:
            return Session(self._engine.connect())
        return Session(await self._threads.run(self._engine.connect, writes=False))

    def hang_up(self) -> None:
        """Do nothing: no server keeps a connection waiting."""

    async def dispose(self) -> None:
        """Close every connection that is not in use; once more does nothing."""
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
        found = await self._run(lambda: self._session.conn.execute(query))
        names, parts = tuple(found.keys()), found.partitions()
        while rows := await self._run(lambda: next(parts, ())):
            yield Result(names, rows, -1)

    async def run_sync(self, work: Callable[[sa.Connection], T]) -> T:
        """Return what `work` returns for SQLAlchemy's connection."""
        return await self._run(partial(work, self._session.conn))

    @contextlib.asynccontextmanager
    async def begin(self) -> AsyncIterator[None]:
        """Commit at the end what was begun with the first statement, or roll it back."""
        try:
            yield
            await self._end(self._session.commit)
        except BaseException:
            await self._end(self._session.rollback)
            raise

    def attempt(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Let one statement fail: SQLite undoes that alone."""
        return contextlib.nullcontext()

    async def _end(self, end: Callable[[], None]) -> None:
        if self._wrote and self._threads is not None:
            await self._threads.run(end, writes=True)
        else:
            end()

    async def _run(self, work: Callable[[], T], *, reads: bool = False) -> T:
        """Return what `work` returns; `reads`: it may be begun here, given up, and run again elsewhere."""
        if self._threads is None:
            return self._begun(work)
        if reads:
            waits = self._wrote  # it has the lock already
            with contextlib.suppress(HandOver):
                found: T = self._threads.run_here(self._session.driver, self._begun, work, waits=waits)
                return found
        writes = not (reads or self._only_reads)
        self._wrote |= writes
        return await self._threads.run(self._waiting, work, writes=writes)

    def _waiting(self, work: Callable[[], T]) -> T:
        self._session.driver.wait_for_others(True)
        return self._begun(work)

    def _begun(self, work: Callable[[], T]) -> T:
        self._session.begin(reads=self._only_reads)
        return work()
