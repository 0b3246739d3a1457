"""How do many deliveries become durable in one commit? The hot path of the webhook door.

Deliveries that arrive while one commit runs form the next batch: no timer, no waiting for company. Each caller is
answered only after its commit. This is the one place that speaks to the drivers directly, because a statement built
row by row costs more than the row.
"""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from bot.errors import StoreUnavailable
from bot.store import bell, unusable
from bot.store.inbox import COLUMNS, Incoming, values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.store.store import Store

Row = tuple[Any, ...]
MOST_ROWS = 500  # of one batch
MOST_BYTES = 32 * 1024 * 1024  # of one batch's bodies

WITHIN = 8.0  # seconds until somebody who waits is answered, whatever others before him have waited for
SILENCE = 7.0  # seconds PostgreSQL has for one batch
PATIENCE = 4.0  # seconds until other writers must have let begin what somebody waits for: GitHub waits 10 s

SQLITE_INSERT = (
    f"INSERT INTO delivery ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))}) "  # noqa: S608 - our names
    "ON CONFLICT (guid) DO NOTHING"
)
POSTGRES_INSERT = (  # and tells the workers of other processes, in the same statement
    f"WITH fresh AS (INSERT INTO delivery ({', '.join(COLUMNS)}) SELECT * FROM "  # noqa: S608 - our names
    f"unnest({', '.join(f'${n}::{kind}[]' for n, kind in enumerate(COLUMNS.values(), 1))}) "
    "ON CONFLICT (guid) DO NOTHING RETURNING guid) "
    f"SELECT array_agg(guid), pg_notify('{bell.CHANNEL}', ${len(COLUMNS) + 1}) FROM fresh HAVING count(*) > 0"
)


class Intake:
    """Stores deliveries, many to a commit."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[Row, asyncio.Future[bool]]] = []
        self._leader: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="intake")
        self._connection: sqlite3.Connection | None = None

    async def put(self, incoming: Incoming) -> bool:
        """Store a delivery and return after its commit; False when its GUID was known already.

        Raises StoreUnavailable: then nothing of it was kept, or nobody knows because the database did not answer.
        """
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((values(incoming, self._store.clock.now()), future))
        if self._leader is None:
            self._leader = asyncio.create_task(self._lead())
        try:
            async with asyncio.timeout(WITHIN):
                return await future
        except TimeoutError:
            raise StoreUnavailable(f"the database has kept others waiting for over {WITHIN:g} s") from None

    async def close(self) -> None:
        """Let what waits be stored, then let go of the database."""
        while self._leader is not None:
            await asyncio.shield(self._leader)
        if self._connection is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._connection.close)
        self._thread.shutdown()

    async def _lead(self) -> None:
        try:
            while self._waiting:
                batch = self._next_batch()
                if not batch:
                    break
                rows = [row for row, _ in batch]
                writing = self._sqlite(rows) if self._store.sqlite else self._postgres(rows)
                # whatever went wrong is the callers' to know: nobody else would end their waiting
                (outcome,) = await asyncio.gather(writing, return_exceptions=True)
                answers: Sequence[bool | BaseException] = (
                    [outcome] * len(batch) if isinstance(outcome, BaseException) else outcome
                )
                self._store.note(outcome)
                self._store.work_waiting.set()
                for (_, future), answer in zip(batch, answers, strict=True):
                    if future.done():
                        continue
                    if isinstance(answer, BaseException):
                        future.set_exception(answer)
                    else:
                        future.set_result(answer)
        finally:
            self._leader = None

    def _next_batch(self) -> list[tuple[Row, asyncio.Future[bool]]]:
        """Take what fits together, the first in any case: small bodies pass large ones that have to wait."""
        batch: list[tuple[Row, asyncio.Future[bool]]] = []
        rest, size = [], 0
        for one in self._waiting:
            if one[1].done():  # who waited has been refused
                continue
            grown = size + len(one[0][-1])
            if not batch or (grown <= MOST_BYTES and len(batch) < MOST_ROWS):
                batch.append(one)
                size = grown
            else:
                rest.append(one)
        self._waiting = rest
        return batch

    async def _sqlite(self, rows: Sequence[Row]) -> list[bool]:
        async with self._store.turn(PATIENCE):
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._insert, rows)

    def _insert(self, rows: Sequence[Row]) -> list[bool]:
        try:
            connection = self._connection = self._connection or self._store.connect_sqlite()
            connection.execute("BEGIN IMMEDIATE")
            try:
                new = [connection.execute(SQLITE_INSERT, row).rowcount > 0 for row in rows]
                self._store.require_file()
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            if self._connection is not None:  # who knows what state it is in
                self._connection.close()
                self._connection = None
            raise unusable.refusal(self._store.url, error) from error
        return new

    async def _postgres(self, rows: Sequence[Row]) -> list[bool]:
        async with self._store.connection(silence=SILENCE) as (connection, _):
            columns = list(zip(*rows, strict=True))
            told = set(await connection.fetchval(POSTGRES_INSERT, *columns, self._store.name) or ())
        at = list(COLUMNS).index("guid")
        answers = []
        for row in rows:
            answers.append(row[at] in told)
            told.discard(row[at])  # the same delivery twice in one batch: the first is the one stored
        return answers
