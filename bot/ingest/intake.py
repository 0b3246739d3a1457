"""Durable storage of deliveries, many to a commit: into the database, or into the spool and from there."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from bot.core.errors import GiveUp, StoreUnavailable
from bot.db import db_errors, postgres
from bot.db.group_commit import GroupCommit
from bot.db.store import parse_url
from bot.ingest import spool
from bot.ingest.inbox import ARRIVED, COLUMNS, Incoming, arrived_values, to_stored, to_stored_rows
from bot.ingest.spool import SpoolReader, SpoolWriter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from bot.db.store import Store
    from bot.ingest.spool import DeliveryValues, Part

Values = tuple[Any, ...]  # of ARRIVED, or of COLUMNS once compressed
MAX_ROWS = 500  # of one batch
MAX_BYTES = 32 * 1024 * 1024  # of one batch's bodies
ANSWER_WITHIN = 7.0  # seconds without an answer from PostgreSQL until a batch has failed

RECEIVED_AT = list(ARRIVED).index("received_at")
ARRAYS = f"unnest({', '.join(f'${n}::{kind}[]' for n, kind in enumerate(COLUMNS.values(), 1))})"
WRITTEN = (  # wakes the workers of other processes in the same statement
    f"SELECT array_agg(guid), pg_notify('{postgres.CHANNEL}', ${len(COLUMNS) + 1}) FROM written HAVING count(*) > 0"  # noqa: S608 - our names
)
POSTGRES_INSERT = (
    f"WITH written AS (INSERT INTO delivery ({', '.join(COLUMNS)}) SELECT * FROM {ARRAYS} "  # noqa: S608 - our names
    f"ON CONFLICT (guid) DO NOTHING RETURNING guid) {WRITTEN}"
)
POSTGRES_REPLACE = (  # not ON CONFLICT DO UPDATE, which would wait for a worker that handles a delivery sent again
    f"WITH written AS (UPDATE delivery SET {', '.join(f'{name} = own.{name}' for name in COLUMNS)}, "  # noqa: S608 - our names
    f"attempts = 0, error = NULL FROM {ARRAYS} AS own ({', '.join(COLUMNS)}) "
    f"WHERE delivery.guid = own.guid AND delivery.state = 'foreign' RETURNING delivery.guid) {WRITTEN}"
)
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


class Intake:
    """Stores deliveries, many to a commit."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._group: GroupCommit[Values, bool] = GroupCommit(
            self._write,
            max_items=MAX_ROWS,
            max_size=MAX_BYTES,
            size=lambda row: len(row[-1]),
            pause=0.0 if store.sqlite else None,
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="intake")
        self._spool = SpoolWriter(store)
        self._recent = RecentGuids()
        self._mover = Mover(store)

    def put(self, incoming: Incoming) -> asyncio.Future[bool]:
        """Store a delivery; after its commit the future is True, or False when its GUID was known already.

        A copy for another App is not known: our own delivery replaces it.

        It fails with StoreUnavailable if the delivery was not stored, or may not have been.
        """
        return self._group.put(arrived_values(incoming, self._store.clock.now()))

    async def close(self) -> None:
        """Store what is waiting, empty the spool if possible, then close the connections."""
        await self._group.drain()
        await self.show_arrived()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._spool.close)
        self._thread.shutdown()
        await self._mover.close()

    async def move_arrived(self) -> int:
        """Move what has arrived into the inbox; returns how many deliveries. Raises StoreUnavailable."""
        return await self._mover.move() if self._store.sqlite else 0

    @contextlib.asynccontextmanager
    async def arrived_next(self, most: int) -> AsyncIterator[Sequence[Values]]:
        """Yield what has arrived on SQLite and is not in the inbox, up to about `most` deliveries.

        They are gone from the spool once the caller has stored them. Raises StoreUnavailable.
        """
        if not self._store.sqlite:
            yield ()
            return
        async with self._mover.next(most) as rows:
            yield rows

    async def show_arrived(self) -> None:
        """Move what has arrived before deliveries are looked up; the look-up reports a database that fails."""
        with contextlib.suppress(StoreUnavailable):
            await self.move_arrived()

    async def arrived(self) -> tuple[int, int | None]:
        """Return how many deliveries are still to be moved, and when the first was received (epoch milliseconds)."""
        return await self._mover.waiting() if self._store.sqlite else (0, None)

    async def _write(self, rows: Sequence[Values]) -> list[bool]:
        try:
            new = await (self._sqlite(rows) if self._store.sqlite else self._postgres(rows))
        except StoreUnavailable as error:
            self._store.note_outcome(error)
            raise
        finally:
            self._store.work_waiting.set()
        if not self._store.sqlite:  # there it says nothing of the database
            self._store.note_outcome(None)
        return new

    async def _sqlite(self, rows: Sequence[Values]) -> list[bool]:
        new = self._recent.unknown(rows)
        fresh = [row for row, is_new in zip(rows, new, strict=True) if is_new]
        if fresh:
            append = partial(self._spool.append, fresh, received_at=rows[0][RECEIVED_AT])
            await asyncio.get_running_loop().run_in_executor(self._thread, append)
            self._recent.remember(fresh)
        return new

    async def _postgres(self, arrived: Sequence[Values]) -> list[bool]:
        rows = await to_stored_rows(arrived)
        async with self._store.connection(answer_within=ANSWER_WITHIN) as (connection, _):
            new = await self._written(connection, POSTGRES_INSERT, rows)
            known = [row for row, is_new in zip(rows, new, strict=True) if not is_new and is_ours(row)]
            if known:
                replaced = iter(await self._written(connection, POSTGRES_REPLACE, known))
                new = [
                    is_new or (is_ours(row) and next(replaced)) for row, is_new in zip(rows, new, strict=True)
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


class RecentGuids:
    """The GUIDs that this process stored last, and whether each delivery was meant for our App."""

    def __init__(self) -> None:
        self._newer: dict[str, bool] = {}
        self._older: dict[str, bool] = {}

    def unknown(self, rows: Sequence[DeliveryValues]) -> list[bool]:
        """Return which deliveries are new; a copy for another App does not count, our own delivery replaces it."""
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

    def remember(self, stored: Sequence[DeliveryValues]) -> None:
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
    async def next(self, most: int) -> AsyncIterator[Sequence[DeliveryValues]]:
        """Yield up to about `most` arrived deliveries; they count as moved once the caller has stored them.

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
        """Return how many deliveries have not been moved, and when the first was received (epoch milliseconds)."""
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

    def _insert(self, rows: Sequence[DeliveryValues]) -> None:
        try:
            self._store.require_file()
            database = self._database = self._database or self._store.connect_sqlite()
            database.execute("BEGIN IMMEDIATE")
            try:
                insert_deliveries(database, rows)
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


def insert_deliveries(database: sqlite3.Connection, arrived: Sequence[DeliveryValues]) -> None:
    """Insert deliveries that are not in the inbox; ours replace a copy for another App."""
    rows = [to_stored(row) for row in arrived]
    if database.executemany(INSERT, rows).rowcount < len(rows):
        database.executemany(REPLACE, [row for row in rows if is_ours(row)])


def is_ours(row: DeliveryValues) -> bool:
    """Whether a delivery was meant for our App."""
    return bool(row[STATE] != "foreign")


def read_spool(url: str) -> list[DeliveryValues]:
    """Return the deliveries in the spool of a database, without changing anything; none where it has no spool."""
    database = parse_url(url)
    name = database.database or ""
    if database.get_backend_name() != "sqlite":
        return []
    try:
        return spool.deliveries_waiting(name)
    except OSError as error:
        raise GiveUp(f"{spool.spool_path(name)} cannot be read: {error}") from error


def add_to_copy(rows: list[DeliveryValues], copy: sqlite3.Connection) -> None:
    """Add deliveries to the copy of a database; those that were moved before it was made are there already."""
    with copy:
        insert_deliveries(copy, rows)
