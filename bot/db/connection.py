"""What a transaction needs of a database connection, and what a statement returns, on either database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from bot.db.statements import Statement

    Parameters = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Result:
    """The rows of a statement, all of them, and how many rows it changed."""

    names: tuple[str, ...]  # of the columns; empty where it returns no rows
    rows: Sequence[Any]  # tuples whose fields have these names
    rowcount: int

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def all(self) -> list[Any]:
        """Return the rows."""
        return list(self.rows)

    def first(self) -> Any:
        """Return the first row, None without any."""
        return self.rows[0] if self.rows else None

    def one(self) -> Any:
        """Return the only row; raises NoResultFound or MultipleResultsFound."""
        if not self.rows:
            raise sa.exc.NoResultFound("a row was required")
        return self.one_or_none()

    def one_or_none(self) -> Any:
        """Return the only row, None without any; raises MultipleResultsFound."""
        if len(self.rows) > 1:
            raise sa.exc.MultipleResultsFound("one row at most was expected")
        return self.first()

    def scalar(self) -> Any:
        """Return the first value of the first row, None without any."""
        return self.rows[0][0] if self.rows else None

    def scalar_one(self) -> Any:
        """Return the first value of the only row; raises NoResultFound or MultipleResultsFound."""
        return self.one()[0]

    def scalars(self) -> list[Any]:
        """Return the first value of each row."""
        return [row[0] for row in self.rows]

    def mappings(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries."""
        names = self.names
        return [dict(zip(names, row)) for row in self.rows]  # noqa: B905 - as many, by construction


def fetch_all(found: sa.CursorResult[Any]) -> Result:
    """Return what SQLAlchemy has run, with all its rows."""
    if not found.returns_rows:
        return Result((), (), found.rowcount)
    return Result(tuple(found.keys()), found.all(), found.rowcount)


class Connection(Protocol):
    """A connection to SQLite (`sqlite_engine`) or PostgreSQL (`postgres`)."""

    async def execute(self, statement: sa.Executable | Statement, parameters: Parameters = None) -> Result:
        """Execute a statement once, or for each of several sets of parameters."""
        ...

    async def exec_driver_sql(self, statement: str, parameters: Any = None) -> Result:
        """Execute a statement in the driver's own SQL."""
        ...

    def stream(self, statement: sa.Select[Any], *, size: int) -> AsyncIterator[Result]:
        """Execute a query and yield its rows, `size` at a time."""
        ...

    async def run_sync(self, work: Callable[[sa.Connection], T]) -> T:
        """Return what `work` returns for SQLAlchemy's connection."""
        ...

    def begin(self) -> AbstractAsyncContextManager[None]:
        """Commit at the end, or roll back on any error."""
        ...

    def attempt(self) -> AbstractAsyncContextManager[None]:
        """Let one statement fail without ending the transaction."""
        ...


class Engine(Protocol):
    """The connections to a database."""

    def connect(
        self, *, reads: bool = False, answer_within: float
    ) -> AbstractAsyncContextManager[Connection]:
        """Yield a connection, to read one snapshot or to write.

        What is not committed at the end is rolled back. On PostgreSQL it fails after `answer_within` seconds without
        an answer.
        """
        ...

    def hang_up(self) -> None:
        """Drop the connections in use that wait for a server: nothing that was begun on them is committed."""
        ...

    async def dispose(self) -> None:
        """Close every connection."""
        ...
