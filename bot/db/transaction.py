"""A running transaction: statements, and what is written just before it commits."""

from __future__ import annotations

import asyncio
import functools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects import sqlite as sqlite_dialect

from bot.db.rows import as_rows
from bot.db.statements import Statement

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from contextlib import AbstractAsyncContextManager

    from bot.db.rows import TypedSelect
    from bot.db.statements import Connection, Parameters, Result, RowStatement

T = TypeVar("T")
Changed = Mapping[str, Sequence[Mapping[str, Any]]]  # rows as they are now, by table
BeforeCommit = Callable[["Transaction", Changed], Awaitable[None]]


@dataclass(frozen=True)
class Slot(Generic[T]):
    """A place where a part of the program keeps something while a transaction runs, or while a store is open."""

    name: str
    make: Callable[[], T]  # its first content


@dataclass(frozen=True, kw_only=True)
class TaskRequest:
    """A task to be enqueued with a transaction; see `Transaction.enqueue`."""

    kind: str
    key: str
    due_at: int  # epoch milliseconds
    max_wait: int | None = None  # milliseconds a waiting task may be postponed in all
    cause: str | None = None  # the delivery that asked for it


class Transaction:
    """A running transaction: a connection, the time it began, and what will be written at its end."""

    def __init__(
        self,
        conn: Connection,
        *,
        now: int,
        sqlite: bool,
        before_commit: Sequence[BeforeCommit] = (),
        kept: dict[str, Any] | None = None,
    ) -> None:
        self.conn = conn
        self.now = now  # epoch milliseconds
        self.sqlite = sqlite
        self.cause: str | None = None  # the delivery being handled; stored with its tasks
        self.wakes_workers = False  # something is due once this is committed
        self.replaying = False  # rebuilding records: most tasks are not enqueued
        self._before_commit = before_commit
        self._requests: dict[tuple[str, str], TaskRequest] = {}
        self._slots: dict[str, Any] = {}
        self._kept = {} if kept is None else kept
        self._changed: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)

    def slot(self, slot: Slot[T]) -> T:
        """Return what a slot holds, made on first use."""
        if slot.name not in self._slots:
            self._slots[slot.name] = slot.make()
        value: T = self._slots[slot.name]
        return value

    def kept(self, slot: Slot[T]) -> T:
        """Return what a slot holds for as long as the store is open, made on first use.

        Only what was committed belongs into it: a rollback takes nothing away.
        """
        value: T = self._kept.setdefault(slot.name, slot.make())
        return value

    def empty(self, slot: Slot[T]) -> T:
        """Return what a slot held, and leave it empty."""
        value: T = self._slots.pop(slot.name) if slot.name in self._slots else slot.make()
        return value

    def take_requests(self) -> list[TaskRequest]:
        """Return the requested tasks in a fixed order, so that no two transactions ever wait for each other."""
        requests, self._requests = self._requests, {}
        return [requests[name] for name in sorted(requests)]

    def note_changed(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Note which rows of a table this transaction wrote, for the hooks."""
        self._changed[table].extend(rows)

    def enqueue(
        self, kind: str, key: str, *, delay: float = 0, max_wait: float | None = None, replayed: bool = False
    ) -> None:
        """Request a task, due in `delay` seconds or earlier where it already waits for an earlier time.

        With `max_wait` each request postpones a waiting task to `delay` from now (debouncing), but never beyond
        `max_wait` seconds after the first request. While records are rebuilt, only tasks that are to be `replayed` are
        enqueued: those that call nothing outside.
        """
        if self.replaying and not replayed:
            return
        request = TaskRequest(
            kind=kind,
            key=key,
            due_at=self.now + round(delay * 1000),
            max_wait=None if max_wait is None else round(max_wait * 1000),
            cause=self.cause,
        )
        self.wakes_workers |= request.due_at <= self.now
        known = self._requests.get((kind, key))
        if known is None or request.due_at < known.due_at:
            self._requests[kind, key] = request

    async def run_before_commit(self) -> None:
        """Run every hook in turn; they write what was gathered."""
        for hook in self._before_commit:
            await hook(self, self._changed)
        self._changed.clear()

    def insert(self, table: sa.Table) -> Any:
        """Return this database's INSERT, which has ON CONFLICT."""
        return insert_into(table, sqlite=self.sqlite)

    async def upsert(
        self,
        table: sa.Table,
        rows: Sequence[Mapping[str, Any]],
        *,
        replaced: Sequence[str] = (),
        added: Sequence[str] = (),
        greatest: Sequence[str] = (),
        index: Sequence[str] = (),
        returning: Sequence[str] = (),
    ) -> Result:
        """Insert rows, all of the same columns and at least one; of a row that is there already, change these columns.

        A column is replaced, has the new value added to it, or keeps the greater of both; without any, the row stays
        as it is. `index` is the unique key that tells which row it is, by default the primary key. Rows are written
        in the order given: sort them by key, so that no two transactions wait for each other.
        """
        changes = (tuple(replaced), tuple(added), tuple(greatest))
        statement = _upsert(table, changes, tuple(index), returning=tuple(returning), sqlite=self.sqlite)
        return await self.run(statement, list(rows))

    async def run(self, statement: sa.Executable | Statement, parameters: Parameters = None) -> Result:
        """Execute one statement."""
        return await self.conn.execute(statement, parameters)

    def attempt(self) -> AbstractAsyncContextManager[None]:
        """Let one statement, for one row, fail without ending the transaction; its error is raised."""
        return self.conn.attempt()

    async def rows(
        self, statement: sa.Executable | Statement, parameters: Parameters = None
    ) -> list[dict[str, Any]]:
        """Execute a query and return its rows as dictionaries."""
        return (await self.conn.execute(statement, parameters)).mappings()

    async def fetch(self, query: TypedSelect[T] | RowStatement[T], parameters: Parameters = None) -> list[T]:
        """Execute a query made by `bot.db.rows.select` and return its rows."""
        return cast("list[T]", await self.rows(query, parameters))

    async def fetch_first(
        self, query: TypedSelect[T] | RowStatement[T], parameters: Parameters = None
    ) -> T | None:
        """Execute a query made by `bot.db.rows.select` and return its first row, or None."""
        return cast("T | None", await self.row(query, parameters))

    async def rows_as(
        self, kind: type[T], statement: sa.Executable | Statement, parameters: Parameters = None
    ) -> list[T]:
        """Execute a statement written by hand and return its rows as this TypedDict; its columns are checked."""
        return as_rows(kind, await self.rows(statement, parameters))

    async def row_as(
        self, kind: type[T], statement: sa.Executable | Statement, parameters: Parameters = None
    ) -> T | None:
        """Execute a statement written by hand and return its first row as this TypedDict, or None."""
        row = await self.row(statement, parameters)
        return None if row is None else as_rows(kind, [row])[0]

    async def slices(self, statement: sa.Select[Any], *, size: int) -> AsyncIterator[list[dict[str, Any]]]:
        """Execute a query and yield its rows, `size` at a time: no more are held, and other tasks get to run."""
        async for part in self.conn.stream(statement, size=size):
            yield part.mappings()
            await asyncio.sleep(0)

    async def row(
        self, statement: sa.Executable | Statement, parameters: Parameters = None
    ) -> dict[str, Any] | None:
        """Execute a query and return its first row, or None."""
        return next(iter(await self.rows(statement, parameters)), None)

    def among(
        self, columns: Sequence[sa.ColumnElement[Any]], keys: Sequence[tuple[Any, ...]]
    ) -> sa.ColumnElement[bool]:
        """Return the condition that these columns equal one of some keys, in a form that uses an index.

        SQLite scans the whole table for `(a, b) IN (VALUES ...)`; for `IN (SELECT ...)` it uses the index.
        """
        return _among(columns, self.keys(keys), sqlite=self.sqlite)

    def keys(self, keys: Sequence[tuple[Any, ...]]) -> Any:
        """Return keys as the parameter of a condition made by `among_given`."""
        return msgspec.json.encode(keys).decode() if self.sqlite else keys


def among_given(
    columns: Sequence[sa.ColumnElement[Any]], name: str, *, sqlite: bool
) -> sa.ColumnElement[bool]:
    """Return what `Transaction.among` does, for statements put together once; `Transaction.keys` is given by name."""
    given: sa.BindParameter[Any] = sa.bindparam(name, expanding=not sqlite)
    return _among(columns, given, sqlite=sqlite)


def insert_into(table: sa.Table, *, sqlite: bool) -> Any:
    """Return a database's INSERT, which has ON CONFLICT."""
    return sqlite_dialect.insert(table) if sqlite else postgresql.insert(table)


def _among(columns: Sequence[sa.ColumnElement[Any]], keys: Any, *, sqlite: bool) -> sa.ColumnElement[bool]:
    if not sqlite:
        return sa.tuple_(*columns).in_(keys)
    # it looks for all of a row as for its first column: of another type each takes a condition of its own
    text = isinstance(columns[0].type, sa.String)
    odd = [place for place, column in enumerate(columns) if isinstance(column.type, sa.String) != text]
    whole = sa.tuple_(*columns).in_(sa.select(*_members(keys, range(len(columns)))))
    return sa.and_(whole, *(columns[place].in_(sa.select(*_members(keys, [place]))) for place in odd))


def _members(keys: Any, places: Iterable[int]) -> list[sa.ColumnElement[Any]]:
    """Return the expressions for some places of the arrays in a JSON array."""
    listed = sa.func.json_each(keys).table_valued("value")
    return [sa.func.json_extract(listed.c.value, f"$[{place}]") for place in places]


@functools.cache
def _upsert(
    table: sa.Table,
    changes: tuple[tuple[str, ...], ...],
    index: tuple[str, ...],
    *,
    returning: tuple[str, ...],
    sqlite: bool,
) -> Statement:
    """Return the statement of `Transaction.upsert`: building one takes longer than running it."""
    replaced, added, greatest = changes
    insert = insert_into(table, sqlite=sqlite)
    new = insert.excluded
    keys = index or tuple(column.name for column in table.primary_key.columns)
    changed = {name: new[name] for name in replaced if name not in keys}
    changed |= {name: table.c[name] + new[name] for name in added}
    changed |= {
        name: sa.case((new[name] > table.c[name], new[name]), else_=table.c[name]) for name in greatest
    }
    if changed:
        insert = insert.on_conflict_do_update(index_elements=keys, set_=changed)
    else:
        insert = insert.on_conflict_do_nothing()
    return Statement(insert.returning(*(table.c[name] for name in returning)) if returning else insert)
