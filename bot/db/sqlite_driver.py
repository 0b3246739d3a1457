"""SQLite's asynchronous driver, one step a statement: SQLAlchemy's own hands four to the connection's thread for each.

For most of our statements handing over takes longer than the statement. A transaction begins with its first statement,
and what holds nothing is not rolled back.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from typing import TYPE_CHECKING, Any

import aiosqlite
from sqlalchemy.dialects.sqlite.aiosqlite import (
    AsyncAdapt_aiosqlite_connection,
    AsyncAdapt_aiosqlite_cursor,
    AsyncAdapt_aiosqlite_dbapi,
)
from sqlalchemy.util import await_

if TYPE_CHECKING:
    from collections.abc import Callable


class Cursor(AsyncAdapt_aiosqlite_cursor):
    """A statement and all its rows; it holds nothing of the database afterwards."""

    __slots__ = ()

    _adapt_connection: Connection
    _awaitable_cursor_close = False  # it is closed already

    def _make_new_cursor(self, connection: Any) -> Any:
        """There is none before the statement."""

    def _aenter_cursor(self, cursor: Any) -> Any:
        """There is nothing to wait for."""

    def execute(self, operation: Any, parameters: Any = None) -> None:
        """Execute a statement."""
        self._do(sqlite3.Cursor.execute, operation, parameters or ())

    def executemany(self, operation: Any, seq_of_parameters: Any) -> None:
        """Execute a statement with each of these parameters."""
        self._do(sqlite3.Cursor.executemany, operation, seq_of_parameters)

    def _do(self, execute: Callable[..., object], operation: Any, parameters: Any) -> None:
        def done(connection: sqlite3.Connection, begin: str | None) -> tuple[sqlite3.Cursor, list[Any]]:
            cursor = connection.cursor()
            try:
                if begin:
                    cursor.execute(begin)
                execute(cursor, operation, parameters)
                return cursor, cursor.fetchall() if cursor.description else []
            finally:
                cursor.close()

        self._cursor, rows = self._adapt_connection.run(done)
        self._rows = deque(rows)

    def close(self) -> None:
        """Forget the rows."""
        self._rows.clear()


class Connection(AsyncAdapt_aiosqlite_connection):
    """A connection and its thread."""

    __slots__ = ("_begin", "_unsure")

    _cursor_cls = Cursor

    def __init__(self, dbapi: Any, connection: Any) -> None:
        super().__init__(dbapi, connection)
        self._begin: str | None = None  # what the next statement begins with
        self._unsure = False  # whether the last statement came to its end

    def begin(self, statement: str) -> None:
        """Begin a transaction with the next statement."""
        self._begin = statement

    def run(self, work: Callable[[sqlite3.Connection, str | None], Any]) -> Any:
        """Return what `work` returns for the connection in its thread, and for what it has to begin with."""
        begin, self._begin = self._begin, None
        self._unsure = True
        try:
            found = await_(self._connection._execute(work, self._connection._conn, begin))  # noqa: SLF001
        except ValueError as error:  # the connection is closed
            self._handle_exception(error)
        self._unsure = False
        return found

    def cursor(self, server_side: bool = False) -> Any:
        """Return a cursor; `server_side`: one whose rows stay in the database until they are fetched."""
        if server_side and self._begin:
            self.run(lambda connection, begin: connection.execute(begin or ""))
        return super().cursor(server_side)

    def commit(self) -> None:
        """Commit, where anything was begun."""
        if self._is_open():
            super().commit()

    def rollback(self) -> None:
        """Roll back, where anything was begun."""
        if self._is_open():
            super().rollback()

    def _is_open(self) -> bool:
        self._begin = None
        return self._unsure or bool(self._connection._connection and self._connection.in_transaction)  # noqa: SLF001


class Driver(AsyncAdapt_aiosqlite_dbapi):
    """What SQLAlchemy takes for the driver's module."""

    def __init__(self) -> None:
        super().__init__(aiosqlite, sqlite3)

    def connect(self, *args: Any, **options: Any) -> Connection:
        """Open a connection."""
        return Connection(self, super().connect(*args, **options)._connection)  # noqa: SLF001
