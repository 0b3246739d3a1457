"""Durable storage of deliveries, many to a commit: the hot path of the webhook endpoint.

Each caller is answered only after its commit: of the spool on SQLite, of the inbox on PostgreSQL. This speaks to the
driver directly, because a statement built row by row costs more than the row.
"""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from bot.core.errors import StoreUnavailable
from bot.db import notify
from bot.db.group_commit import GroupCommit
from bot.ingest.inbox import ARRIVED, COLUMNS, Incoming, all_as_stored, values
from bot.ingest.spool import SpoolWriter
from bot.ingest.spooling import GUID, Mover, Recent, is_ours

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from bot.db.store import Store

Values = tuple[Any, ...]  # of ARRIVED, or of COLUMNS once compressed
MAX_ROWS = 500  # of one batch
MAX_BYTES = 32 * 1024 * 1024  # of one batch's bodies
ANSWER_WITHIN = 7.0  # seconds without an answer from PostgreSQL until a batch has failed

RECEIVED_AT = list(ARRIVED).index("received_at")
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
    f"attempts = 0, error = NULL FROM {ARRAYS} AS own ({', '.join(COLUMNS)}) "
    f"WHERE delivery.guid = own.guid AND delivery.state = 'foreign' RETURNING delivery.guid) {WRITTEN}"
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
        self._recent = Recent()
        self._mover = Mover(store)

    def put(self, incoming: Incoming) -> asyncio.Future[bool]:
        """Store a delivery; after its commit the future is True, or False when its GUID was known already.

        A copy for another App is not known: our own delivery replaces it.

        It fails with StoreUnavailable if the delivery was not stored, or may not have been.
        """
        return self._group.put(values(incoming, self._store.clock.now()))

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
        """Return how many are to be moved, and when the first of them was received (epoch milliseconds)."""
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
        rows = await all_as_stored(arrived)
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
