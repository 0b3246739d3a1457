"""Before and after the spool: deliveries sent again are recognised, those that have arrived are moved to the inbox.

This speaks to SQLite's driver directly, because a statement built row by row costs more than the row.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from bot.core.errors import StoreUnavailable
from bot.db import db_errors
from bot.ingest.inbox import COLUMNS, as_stored
from bot.ingest.spool_reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from bot.db.store import Store
    from bot.ingest.spool import Values
    from bot.ingest.spool_reader import Part

T = TypeVar("T")
GUID, STATE = list(COLUMNS).index("guid"), list(COLUMNS).index("state")
RECENT = 20_000  # GUIDs that a process remembers at least
INSERT = (
    f"INSERT INTO delivery ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))}) "  # noqa: S608 - our names
    "ON CONFLICT (guid) DO NOTHING"
)
REPLACE = (
    f"UPDATE delivery SET {', '.join(f'{name} = ?{n}' for n, name in enumerate(COLUMNS, 1))}, "  # noqa: S608 - our names
    f"attempts = 0, error = NULL WHERE guid = ?{GUID + 1} AND state = 'foreign'"
)


class Recent:
    """The GUIDs that this process stored last, and whether each delivery was meant for our App."""

    def __init__(self) -> None:
        self._newer: dict[str, bool] = {}
        self._older: dict[str, bool] = {}

    def unknown(self, rows: Sequence[Values]) -> list[bool]:
        """Return which deliveries are new: a copy for another App is not known, our own delivery replaces it."""
        batch: dict[str, bool] = {}
        new = []
        for row in rows:
            guid, ours = row[GUID], is_ours(row)
            seen = batch.get(guid)
            if seen is None and (seen := self._newer.get(guid)) is None:
                seen = self._older.get(guid)
            new.append(seen is None or (ours and not seen))
            if new[-1]:
                batch[guid] = ours
        return new

    def remember(self, stored: Sequence[Values]) -> None:
        """Remember what was stored."""
        self._newer.update((row[GUID], is_ours(row)) for row in stored)
        if len(self._newer) > RECENT:
            self._newer, self._older = {}, self._newer


class Mover:
    """Moves what has arrived into the inbox."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._spool = SpoolReader(store)
        self._database: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mover")
        self._moving = asyncio.Lock()

    async def move(self) -> int:
        """Move deliveries until none is left; returns how many. Raises StoreUnavailable."""
        moved = 0
        async with self._moving:
            try:
                while part := await self._in_thread(self._spool.read):
                    async with self._store.writer_lock():
                        await self._in_thread(partial(self._insert, part.rows))
                    await self._in_thread(partial(self._spool.moved, part))
                    self._store.note_outcome(None)
                    moved += len(part.rows)
            finally:
                await self._in_thread(self._spool.release)
        return moved

    @contextlib.asynccontextmanager
    async def next(self, most: int) -> AsyncIterator[Sequence[Values]]:
        """Yield what has arrived, up to about `most` deliveries; those are moved once the caller has stored them.

        An error leaves them where they are. Raises StoreUnavailable.
        """
        async with self._moving:
            try:
                part = await self._in_thread(partial(self._spool.read, most))
                yield part.rows if part else ()
                if part:
                    await self._in_thread(partial(self._moved, part))
            except BaseException:
                await self._in_thread(self._spool.release)
                raise

    async def waiting(self) -> tuple[int, int | None]:
        """Return how many have not been moved, and when the first of them was received (epoch milliseconds)."""
        return await self._in_thread(self._spool.waiting)

    async def close(self) -> None:
        """Close the connections."""
        await self._in_thread(self._close)
        self._thread.shutdown()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _moved(self, part: Part) -> None:
        self._spool.moved(part)
        self._spool.pause()

    def _insert(self, rows: Sequence[Values]) -> None:
        try:
            self._store.require_file()
            database = self._database = self._database or self._store.connect_sqlite()
            database.execute("BEGIN IMMEDIATE")
            try:
                insert(database, rows)
                database.execute("COMMIT")
            finally:
                if database.in_transaction:
                    database.execute("ROLLBACK")
        except (sqlite3.Error, StoreUnavailable) as error:
            self._close_database()  # its state is unknown
            if isinstance(error, StoreUnavailable):
                raise
            raise db_errors.unavailable(self._store.url, error) from error

    def _close(self) -> None:
        self._spool.release()
        self._close_database()

    def _close_database(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


def insert(database: sqlite3.Connection, arrived: Sequence[Values]) -> None:
    """Write deliveries that are not in the inbox, and ours in place of a copy for another App."""
    rows = [as_stored(row) for row in arrived]
    if database.executemany(INSERT, rows).rowcount < len(rows):
        database.executemany(REPLACE, [row for row in rows if is_ours(row)])


def is_ours(row: Values) -> bool:
    """Whether a delivery was meant for our App."""
    return bool(row[STATE] != "foreign")
