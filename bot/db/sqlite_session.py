"""A connection to SQLite: transactions and statements that run often go to the driver, others through SQLAlchemy.

SQLAlchemy takes longer to begin and end a transaction than SQLite. It shares the driver's connection: what it is left
to run belongs to the transaction that was begun here. What is raised are its errors.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.db.connection import Result, fetch_all
from bot.db.statements import Statement

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bot.db.connection import Parameters
    from bot.db.statements import Compiled


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
        """Give the connection back; what was not committed is undone."""
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
            rows = [row for one in made for row in one.rows]
            return Result(made[0].names, rows, sum(one.rowcount for one in made))
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
