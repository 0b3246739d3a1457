"""A connection to SQLite: its transactions and statements go to the driver itself wherever nothing more is needed.

SQLAlchemy takes longer to begin and end a transaction than SQLite. It shares the driver's connection: whatever it is
left to run belongs to the transaction that was begun here. What is raised are its errors.
"""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import sqlalchemy as sa
from sqlalchemy.engine.result import IteratorResult, SimpleResultMetaData

from bot.db import sqlite_statements
from bot.db.sqlite_statements import Prepared, Unprepared

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTHING = SimpleResultMetaData(())


class Done(IteratorResult[Any]):
    """The rows of a statement, if it returns any, and how many it has changed: as SQLAlchemy's `Result`."""

    rowcount: int


class _Call(NamedTuple):
    """A compiled statement, and its parameters as the driver takes them."""

    prepared: Prepared
    bound: list[Any]
    many: bool


class Session:
    """SQLAlchemy's connection and the driver's; one transaction at a time."""

    def __init__(self, conn: sa.Connection) -> None:
        self.conn = conn
        self._driver: Any = conn.connection.dbapi_connection
        # a transaction that reads first and writes later would fail where another wrote in between
        self._begin = "BEGIN" if conn.get_execution_options().get("ootbot_read") else "BEGIN IMMEDIATE"

    def execute(self, statement: Any, parameters: Any = None) -> sa.CursorResult[Any]:
        """Execute a statement, as `sqlalchemy.Connection.execute` does."""
        if (call := self._call(statement, parameters)) is None:
            return self.conn.execute(statement, parameters)
        found, rowcount = self._run(call)
        names = call.prepared.names
        rows = iter(call.prepared.read(found)) if names else iter(())
        done = Done(call.prepared.described if names else NOTHING, cast("Iterator[Any]", rows))
        done.rowcount = rowcount
        return cast("sa.CursorResult[Any]", done)

    def rows(self, statement: Any, parameters: Any = None) -> list[dict[str, Any]]:
        """Execute a query and return its rows as dictionaries."""
        if (call := self._call(statement, parameters)) is None:
            found = self.conn.execute(statement, parameters)
            names = tuple(found.keys())
            return [dict(zip(names, row, strict=True)) for row in found.all()]
        names = call.prepared.names
        return [dict(zip(names, row)) for row in call.prepared.read(self._run(call)[0])]  # noqa: B905 - as many

    def begin(self) -> None:
        """Begin a transaction, unless one has begun."""
        if not self._driver.in_transaction:
            with self._errors("BEGIN"):
                self._driver.execute(self._begin)

    def commit(self) -> None:
        """Commit the transaction, if one has begun."""
        if self.conn.in_transaction():
            self.conn.commit()
        else:
            with self._errors("COMMIT"):
                self._driver.commit()

    def rollback(self) -> None:
        """Undo the transaction, if one has begun."""
        if self.conn.in_transaction():
            self.conn.rollback()
        else:
            with self._errors("ROLLBACK"):
                self._driver.rollback()

    def close(self) -> None:
        """Give the connection back; what was not committed is undone."""
        self.conn.close()

    def _call(self, statement: Any, parameters: Any) -> _Call | None:
        """Return what the driver is to run; None: SQLAlchemy runs it, for the first time, or as somebody listens."""
        known = sqlite_statements.known(statement)
        if known is None or self.conn.dispatch.before_cursor_execute:
            return None
        many = isinstance(parameters, list)
        first = (parameters[0] if parameters else {}) if many else parameters or {}
        try:
            given = known.filled(self.conn.dialect, statement, first)
            prepared = known.prepared(self.conn.dialect, statement, given, many=many)
            bound = [prepared.bound(row) for row in parameters] if many else prepared.bound(given)
        except (Unprepared, LookupError):  # where a value is missing, SQLAlchemy says which
            return None
        return _Call(prepared, bound, many)

    def _run(self, call: _Call) -> tuple[list[tuple[Any, ...]], int]:
        """Return the rows, and how many rows were changed."""
        self.begin()
        sql = call.prepared.sql
        cursor = self._driver.cursor()
        try:
            if call.many:
                cursor.executemany(sql, call.bound)
            else:
                cursor.execute(sql, call.bound)
            return cursor.fetchall() if call.prepared.names else [], cursor.rowcount
        except sqlite3.Error as error:
            raise self._translated(sql, error, call.bound) from error

    @contextlib.contextmanager
    def _errors(self, sql: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._translated(sql, error) from error

    def _translated(self, sql: str, error: sqlite3.Error, bound: Any = ()) -> Exception:
        made: Exception = sa.exc.DBAPIError.instance(
            sql, bound, error, sqlite3.Error, dialect=self.conn.dialect
        )
        return made
