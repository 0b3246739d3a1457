"""SQLite in the calling thread: for processes whose event loop may wait for a statement.

Handing a statement to another thread takes longer than most of our statements do. Whoever answers requests hands over
what may take long all the same (`sqlite_threads`): a commit waits for the disk. A worker, and the thread that renders
pages, do not. Of SQLAlchemy's asynchronous engine this has what a store uses.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from bot.db.sqlite_session import Session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    import sqlalchemy as sa

T = TypeVar("T")
MOST_IDLE = 4  # connections that stay open: each has a page cache


class Engine:
    """SQLAlchemy's synchronous engine; connections are used again as they are, since its pool takes 60 us for each."""

    def __init__(self, engine: sa.Engine, stacks: list[list[Session]] | None = None) -> None:
        self._engine = engine
        self._idle: list[Session] = []
        self._stacks = stacks or []  # of what is idle with other options, and here
        self._stacks.append(self._idle)
        self.url = engine.url

    def execution_options(self, **options: Any) -> Engine:
        """Return an engine with these options, closed with this one."""
        return Engine(self._engine.execution_options(**options), self._stacks)

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        """Yield a connection; what is not committed at the end is rolled back."""
        session = self._idle.pop() if self._idle else Session(self._engine.connect())
        try:
            yield Connection(session)
            session.rollback()
        except BaseException:
            session.close()  # its state may be the reason
            raise
        if len(self._idle) < MOST_IDLE:
            self._idle.append(session)
        else:
            session.close()

    async def dispose(self) -> None:
        """Close every connection that is not in use."""
        for idle in self._stacks:
            while idle:
                idle.pop().close()
        self._engine.dispose()


class Connection:
    """A connection of that engine."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @contextlib.asynccontextmanager
    async def begin(self) -> AsyncIterator[None]:
        """Commit at the end what was begun with the first statement, or roll it back."""
        try:
            yield
            self._session.commit()
        except BaseException:
            self._session.rollback()
            raise

    async def execute(self, statement: Any, parameters: Any = None) -> sa.CursorResult[Any]:
        """Execute one statement."""
        return self._session.execute(statement, parameters)

    async def rows(self, statement: Any, parameters: Any = None) -> list[dict[str, Any]]:
        """Execute a query and return its rows as dictionaries."""
        return self._session.rows(statement, parameters)

    async def exec_driver_sql(self, statement: str, parameters: Any = None) -> sa.CursorResult[Any]:
        """Execute one statement in the driver's own SQL."""
        return self._session.conn.exec_driver_sql(statement, parameters)

    async def stream(self, statement: Any) -> Result:
        """Execute one statement whose rows are fetched in parts."""
        return Result(self._session.conn.execute(statement))

    async def run_sync(self, work: Callable[[sa.Connection], T]) -> T:
        """Return what `work` returns for the connection itself."""
        return work(self._session.conn)


class Result:
    """Rows fetched in parts."""

    def __init__(self, result: sa.CursorResult[Any]) -> None:
        self._result = result

    def keys(self) -> Iterable[str]:
        """Return the columns' names."""
        return self._result.keys()

    async def partitions(self) -> AsyncIterator[Sequence[sa.Row[Any]]]:
        """Yield the rows in parts of the statement's `yield_per`."""
        for part in self._result.partitions():
            yield part
