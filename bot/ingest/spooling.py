"""The way through the spool: known deliveries are found before, and those that have arrived are moved to the inbox.

This speaks to SQLite's driver directly, because a statement built row by row costs more than the row.
"""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from bot.core.errors import StoreUnavailable
from bot.db import db_errors
from bot.ingest.inbox import COLUMNS
from bot.ingest.spool import Spool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bot.db.store import Store
    from bot.ingest.spool import Values

T = TypeVar("T")
GUID, STATE = list(COLUMNS).index("guid"), list(COLUMNS).index("state")
RECEIVED_AT = list(COLUMNS).index("received_at")
RECENT = 20_000  # GUIDs that a process remembers: those it stored last may not have been moved yet
INSERT = (
    f"INSERT INTO delivery ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))}) "  # noqa: S608 - our names
    "ON CONFLICT (guid) DO NOTHING"
)
REPLACE = (
    f"UPDATE delivery SET {', '.join(f'{name} = ?{n}' for n, name in enumerate(COLUMNS, 1))}, "  # noqa: S608 - our names
    f"attempts = 0, error = NULL, codec = NULL WHERE guid = ?{GUID + 1} AND state = 'foreign'"
)
KNOWN = "SELECT guid, state FROM delivery WHERE guid IN (SELECT value FROM json_each(?))"


class Arrivals:
    """Takes deliveries into the spool; its functions are for one thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._spool = Spool(store, durable=True)
        self._database: sqlite3.Connection | None = None
        self._recent: dict[str, bool] = {}  # GUID -> whether it was ours

    def append(self, rows: Sequence[Values]) -> list[bool]:
        """Store deliveries; returns which of them were not known. Raises StoreUnavailable.

        A copy for another App is not known: our own delivery replaces it.
        """
        known = self._stored(rows)
        fresh, new = [], []
        for row in rows:
            guid, ours = row[GUID], is_ours(row)
            seen = known.get(guid, self._recent.get(guid))
            new.append(seen is None or (ours and not seen))
            if new[-1]:
                known[guid] = ours
                fresh.append(row)
        if fresh:
            self._spool.append(fresh, received_at=rows[0][RECEIVED_AT])
            self._remember(fresh)
        return new

    def close(self) -> None:
        """Close the connections."""
        self._spool.close()
        if self._database is not None:
            self._database.close()

    def _stored(self, rows: Sequence[Values]) -> dict[str, bool]:
        guids = msgspec.json.encode([row[GUID] for row in rows]).decode()
        try:
            self._database = self._database or self._store.connect_sqlite()
            return {guid: state != "foreign" for guid, state in self._database.execute(KNOWN, (guids,))}
        except sqlite3.Error as error:
            if self._database is not None:
                self._database.close()
                self._database = None
            raise db_errors.unavailable(self._store.url, error) from error

    def _remember(self, fresh: Sequence[Values]) -> None:
        for row in fresh:
            self._recent[row[GUID]] = is_ours(row)
        while len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]


class Mover:
    """Moves what has arrived into the inbox."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._spool = Spool(store, durable=False)
        self._database: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mover")
        self._moving = asyncio.Lock()

    async def move(self) -> int:
        """Move deliveries until none is left; returns how many. Raises StoreUnavailable."""
        moved = 0
        async with self._moving:
            while spooled := await self._in_thread(self._spool.read):
                rows = [row for one in spooled for row in one.rows]
                async with self._store.writer_lock():
                    await self._in_thread(partial(self._insert, rows))
                await self._in_thread(partial(self._spool.remove, spooled[-1].id))
                self._store.note_outcome(None)
                moved += len(rows)
        return moved

    async def waiting(self) -> tuple[int, int | None]:
        """Return how many have not been moved, and when the first of them was received (epoch milliseconds)."""
        return await self._in_thread(self._spool.waiting)

    async def close(self) -> None:
        """Close the connections."""
        await self._in_thread(self._close)
        self._thread.shutdown()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

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
        self._spool.close()
        self._close_database()

    def _close_database(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


def insert(database: sqlite3.Connection, rows: Sequence[Values]) -> None:
    """Write deliveries that are not in the inbox, and ours in place of a copy for another App."""
    if database.executemany(INSERT, rows).rowcount < len(rows):
        database.executemany(REPLACE, [row for row in rows if is_ours(row)])


def is_ours(row: Values) -> bool:
    """Whether a delivery was meant for our App."""
    return bool(row[STATE] != "foreign")
