"""Durable storage of deliveries, many to a commit: the hot path of the webhook endpoint.

Each caller is answered only after its commit. This is the one place that speaks to the drivers directly, because a
statement built row by row costs more than the row.
"""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from bot.core.errors import StoreUnavailable
from bot.db import db_errors, notify
from bot.db.group_commit import GroupCommit
from bot.db.store import LOCK_TIMEOUT
from bot.ingest.inbox import COLUMNS, Incoming, values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.store import Store

Values = tuple[Any, ...]  # of COLUMNS
MAX_ROWS = 500  # of one batch
MAX_BYTES = 32 * 1024 * 1024  # of one batch's bodies
ANSWER_WITHIN = 7.0  # seconds without an answer from PostgreSQL until a batch has failed

SQLITE_INSERT = (
    f"INSERT INTO delivery ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))}) "  # noqa: S608 - our names
    "ON CONFLICT (guid) DO NOTHING"
)
SQLITE_REPLACE = (
    f"UPDATE delivery SET {', '.join(f'{name} = ?' for name in COLUMNS)}, attempts = 0, error = NULL, codec = NULL "  # noqa: S608 - our names
    "WHERE guid = ? AND state = 'foreign'"
)
ARRAYS = f"unnest({', '.join(f'${n}::{kind}[]' for n, kind in enumerate(COLUMNS.values(), 1))})"
WRITTEN = (  # wakes the workers of other processes in the same statement
    f"SELECT array_agg(guid), pg_notify('{notify.CHANNEL}', ${len(COLUMNS) + 1}) FROM written HAVING count(*) > 0"  # noqa: S608 - our names
)
POSTGRES_INSERT = (
    f"WITH written AS (INSERT INTO delivery ({', '.join(COLUMNS)}) SELECT * FROM {ARRAYS} "  # noqa: S608 - our names
    f"ON CONFLICT (guid) DO NOTHING RETURNING guid) {WRITTEN}"
)
POSTGRES_REPLACE = (  # not ON CONFLICT DO UPDATE, which would wait for a worker that handles a delivery sent again
    f"WITH written AS (UPDATE delivery SET {', '.join(f'{name} = own.{name}' for name in COLUMNS)}, "  # noqa: S608 - our names
    f"attempts = 0, error = NULL, codec = NULL FROM {ARRAYS} AS own ({', '.join(COLUMNS)}) "
    f"WHERE delivery.guid = own.guid AND delivery.state = 'foreign' RETURNING delivery.guid) {WRITTEN}"
)
GUID, STATE = list(COLUMNS).index("guid"), list(COLUMNS).index("state")


class Intake:
    """Stores deliveries, many to a commit."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._group: GroupCommit[Values, bool] = GroupCommit(
            self._write, max_items=MAX_ROWS, max_size=MAX_BYTES, size=lambda row: len(row[-1])
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="intake")
        self._connection: sqlite3.Connection | None = None

    async def put(self, incoming: Incoming) -> bool:
        """Store a delivery and return after its commit; False when its GUID was known already.

        A copy for another App is not known: our own delivery replaces it.

        Raises StoreUnavailable: then it was not stored, or that is unknown because the database did not answer.
        """
        return await self._group.put(values(incoming, self._store.clock.now()))

    async def close(self) -> None:
        """Store what is waiting, then close the connection."""
        await self._group.drain()
        if self._connection is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._connection.close)
        self._thread.shutdown()

    async def _write(self, rows: Sequence[Values]) -> list[bool]:
        try:
            new = await (self._sqlite(rows) if self._store.sqlite else self._postgres(rows))
        except StoreUnavailable as error:
            self._store.note_outcome(error)
            raise
        finally:
            self._store.work_waiting.set()
        self._store.note_outcome(None)
        return new

    async def _sqlite(self, rows: Sequence[Values]) -> list[bool]:
        async with self._store.writer_lock(LOCK_TIMEOUT):
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._insert, rows)

    def _insert(self, rows: Sequence[Values]) -> list[bool]:
        try:
            connection = self._connection = self._connection or self._store.connect_sqlite()
            connection.execute("BEGIN IMMEDIATE")
            try:
                new = [_insert_or_replace(connection, row) for row in rows]
                self._store.require_file()
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            if self._connection is not None:  # its state is unknown
                self._connection.close()
                self._connection = None
            raise db_errors.unavailable(self._store.url, error) from error
        return new

    async def _postgres(self, rows: Sequence[Values]) -> list[bool]:
        async with self._store.connection(answer_within=ANSWER_WITHIN) as (connection, _):
            new = await self._written(connection, POSTGRES_INSERT, rows)
            known = [row for row, is_new in zip(rows, new, strict=True) if not is_new and _is_ours(row)]
            if known:
                replaced = iter(await self._written(connection, POSTGRES_REPLACE, known))
                new = [
                    is_new or (_is_ours(row) and next(replaced))
                    for row, is_new in zip(rows, new, strict=True)
                ]
        return new

    async def _written(self, connection: Any, statement: str, rows: Sequence[Values]) -> list[bool]:
        """Run a statement on rows; returns which of them it has written."""
        columns = list(zip(*rows, strict=True))
        guids = set(await connection.fetchval(statement, *columns, self._store.name) or ())
        written = []
        for row in rows:
            written.append(row[GUID] in guids)
            guids.discard(row[GUID])  # of the same delivery twice in one batch only the first is new
        return written


def _is_ours(row: Values) -> bool:
    return bool(row[STATE] != "foreign")


def _insert_or_replace(connection: sqlite3.Connection, row: Values) -> bool:
    if connection.execute(SQLITE_INSERT, row).rowcount > 0:
        return True
    return _is_ours(row) and connection.execute(SQLITE_REPLACE, (*row, row[GUID])).rowcount > 0
