"""What may be done inside one transaction? Handlers see this and nothing else of the world."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from bot.domain import pull_key
from bot.domain.merging import Record, merge
from bot.store import names, queue, rollup
from bot.store.queue import Request
from bot.store.tables import records as record_tables

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

    from bot.store.hearing import Hearing

KEYS_PER_QUERY = 200  # SQLite's parser and bound parameters have limits


class Transaction:
    """A running transaction: a connection, the time it began, and what is to be written at its end."""

    def __init__(
        self, conn: AsyncConnection, *, now: int, sqlite: bool, hearing: Hearing | None = None
    ) -> None:
        self.conn = conn
        self.now = now  # epoch milliseconds
        self.sqlite = sqlite
        self.cause: str | None = None  # the delivery being handled: tasks remember it
        self.stirred = False  # something is due once this is committed: the workers are rung
        self.replaying = False  # rebuilding records: tasks are not enqueued
        # by id, as last shown by a delivery received then
        self.repositories_seen: dict[str, tuple[dict[str, Any], int]] = {}
        self.stale_days: set[tuple[int, str]] = set()  # whose numbers are to be counted afresh
        self._hearing = hearing
        self._records: list[Record] = []
        self._requests: dict[tuple[str, str], Request] = {}

    def record(self, record: Record) -> None:
        """Merge one record into its table before the transaction ends."""
        self._records.append(record)

    def publish(self, repo: str, number: int | None, *, delay: float = 0) -> None:
        """Have what is shown on a pull request looked at; a push, without a number, shows nothing."""
        if number is not None:
            self.enqueue("publish", pull_key.of(repo, number), delay=delay)

    def enqueue(self, kind: str, key: str, *, delay: float = 0, patience: float | None = None) -> None:
        """Say that a task should run, `delay` seconds from now or when it already waits for an earlier time.

        With `patience` each request pushes a waiting task back to `delay` from now (debouncing), but never further
        than `patience` seconds after the first request.
        """
        if self.replaying:
            return
        request = Request(
            kind=kind,
            key=key,
            due_at=self.now + round(delay * 1000),
            patience=None if patience is None else round(patience * 1000),
            cause=self.cause,
        )
        self.stirred |= request.due_at <= self.now
        known = self._requests.get((kind, key))
        if known is None or request.due_at < known.due_at:
            self._requests[kind, key] = request

    async def flush(self) -> None:
        """Write the records and tasks gathered so far."""
        gathered, self._records = self._records, []
        by_table: dict[str, dict[tuple[Any, ...], list[Record]]] = {}
        for record in gathered:
            by_table.setdefault(record.type.table, {}).setdefault(record.key, []).append(record)
        # one order for all, so that two transactions never wait for each other
        for table in sorted(by_table):
            await self._merge(table, by_table[table])
        await names.keep(self, gathered)
        requests, self._requests = self._requests, {}
        if requests:
            await queue.enqueue(self, [requests[name] for name in sorted(requests)])
        stale, self.stale_days = self.stale_days, set()
        if stale:
            await rollup.mark(self, stale)

    def insert(self, table: sa.Table) -> Any:
        """Return this database's INSERT, which knows ON CONFLICT."""
        return sqlite.insert(table) if self.sqlite else postgresql.insert(table)

    async def run(self, statement: Any, parameters: Any = None) -> sa.CursorResult[Any]:
        """Execute one statement."""
        done: sa.CursorResult[Any] = await self.conn.execute(statement, parameters)
        if self._hearing is not None:
            self._hearing.heard()
        return done

    async def rows(self, statement: Any) -> list[dict[str, Any]]:
        """Execute a query and return its rows as dictionaries."""
        found = await self.run(statement)
        columns = tuple(found.keys())
        return [dict(zip(columns, row, strict=True)) for row in found.all()]

    async def slices(self, statement: Any, *, size: int) -> AsyncIterator[list[dict[str, Any]]]:
        """Execute a query and yield its rows, so many at a time: no more are held, and others get their turn."""
        found = await self.conn.stream(statement.execution_options(yield_per=size))
        columns = tuple(found.keys())
        async for part in found.partitions():
            if self._hearing is not None:
                self._hearing.heard()
            yield [dict(zip(columns, row, strict=True)) for row in part]
            await asyncio.sleep(0)

    async def row(self, statement: Any) -> dict[str, Any] | None:
        """Execute a query and return its first row, or None."""
        found = (await self.run(statement)).mappings().first()
        return None if found is None else dict(found)

    def among(
        self, columns: Sequence[sa.ColumnElement[Any]], keys: Sequence[tuple[Any, ...]]
    ) -> sa.ColumnElement[bool]:
        """Return the condition that these columns are one of some keys, as an index answers it.

        SQLite looks through the whole table for `(a, b) IN (VALUES ...)`; for `IN (SELECT ...)` it uses the index.
        """
        if not self.sqlite:
            return sa.tuple_(*columns).in_(keys)
        listed = sa.func.json_each(msgspec.json.encode(keys).decode()).table_valued("value")
        members = [sa.func.json_extract(listed.c.value, f"$[{place}]") for place in range(len(columns))]
        return sa.tuple_(*columns).in_(sa.select(*members))

    async def _merge(self, name: str, pending: dict[tuple[Any, ...], list[Record]]) -> None:
        """Merge records into one table; a row another process inserts meanwhile is read and merged again."""
        table = record_tables[name]
        keys = list(table.primary_key.columns)
        while pending:
            present = await self._present(table, sorted(pending))
            inserts, updates, retry = [], [], {}
            for key, versions in pending.items():
                row = merged = present.get(key)
                for version in versions:
                    merged = merge(merged, version) or merged
                if row is None:
                    inserts.append(merged)
                elif merged is not row:
                    updates.append(merged)
            if inserts:
                statement = self.insert(table).on_conflict_do_nothing()
                if self.sqlite:  # the only writer: nothing can have come in between
                    await self.run(statement, inserts)
                else:
                    done = await self.run(statement.returning(*keys), inserts)
                    written = {tuple(row) for row in done}
                    retry = {key: versions for key, versions in pending.items()
                             if key not in present and key not in written}  # fmt: skip
            if updates:
                matches = [column == sa.bindparam(f"key_{column.name}") for column in keys]
                values: dict[str, Any] = {
                    c.name: sa.bindparam(c.name) for c in table.columns if c not in set(keys)
                }
                named = [{**row, **{f"key_{c.name}": row[c.name] for c in keys}} for row in updates if row]
                await self.run(sa.update(table).where(*matches).values(values), named)
            pending = retry

    async def _present(
        self, table: sa.Table, keys: Sequence[tuple[Any, ...]]
    ) -> dict[tuple[Any, ...], dict[str, Any]]:
        columns = list(table.primary_key.columns)
        found = {}
        for start in range(0, len(keys), KEYS_PER_QUERY):
            wanted = self.among(columns, keys[start : start + KEYS_PER_QUERY])
            query = sa.select(table).where(wanted).order_by(*columns)
            for row in await self.rows(query if self.sqlite else query.with_for_update()):
                found[tuple(row[column.name] for column in columns)] = row
        return found
