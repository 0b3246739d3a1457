"""How is the database opened, migrated, read and written?

SQLite runs in WAL mode with synchronous=FULL: what was committed survives a power cut. It has one writer at a time,
so writers queue here, in order, instead of polling its lock. PostgreSQL needs no such queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import make_url

from bot.errors import StoreUnavailable
from bot.store import bell, engines, hearing, migrate, unusable
from bot.store.intake import Intake
from bot.store.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

    from bot.clock import Clock

BUSY_TIMEOUT = 5  # seconds a SQLite connection waits for another process
LOST_AFTER = 30.0  # seconds PostgreSQL waits for the next word within a transaction: as long as leases last


class Store:
    """The database. Open it once, close it at the end; `transaction` changes it, `read` does not."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        busy_timeout: float = BUSY_TIMEOUT,
        lost_after: float = LOST_AFTER,
    ) -> None:
        self.url = make_url(engines.driver(url))
        self.clock = clock
        self.sqlite = self.url.get_backend_name() == "sqlite"
        self.name = secrets.token_hex(8)  # what tells this process from others at the same database
        self.work_waiting = asyncio.Event()  # set whenever a commit, here or elsewhere, may have left work
        self._busy_timeout = busy_timeout
        self._engine = engines.make(self.url, busy_timeout, lost_after)
        self._reader = engines.reading(self._engine)
        self._elsewhere: dict[asyncio.AbstractEventLoop, AsyncEngine] = {}
        self._turn = asyncio.Lock()
        self.intake = Intake(self)
        # when the database refused a write and why, until a delivery is stored
        self.failure: tuple[int, str] | None = None
        self._file: tuple[int, int] | None = None

    async def open(self) -> None:
        """Bring the schema up to date; raises Misconfigured where this version cannot work with what is there.

        Raises StoreUnavailable where nothing can.
        """
        try:
            if self.sqlite:
                await asyncio.to_thread(self._try_file)
            with unusable.translated(self.url):
                await migrate.bring_up_to_date(self._engine)
        except BaseException:
            await self.close()
            raise
        if self.sqlite:
            self._file = _identity(self.url.database)

    async def close(self) -> None:
        """Let what waits be stored, then close every connection."""
        await self.intake.close()
        await self._engine.dispose()

    @contextlib.asynccontextmanager
    async def transaction(self, *, patience: float | None = None) -> AsyncIterator[Transaction]:
        """One transaction: committed at the end, rolled back on any error.

        With `patience` it is refused when other writers keep it waiting for so many seconds: on SQLite until it
        begins, on PostgreSQL for any lock, or when PostgreSQL says nothing for a second more.
        """
        try:
            with unusable.translated(self.url):
                self.require_file()
                silence = hearing.ALONE if patience is None else patience + 1
                connected = self._connected(self._engine, silence)
                async with self.turn(patience), connected as (conn, heard), conn.begin():
                    tx = Transaction(conn, now=self.clock.now(), sqlite=self.sqlite, hearing=heard)
                    if patience is not None and not self.sqlite:
                        await tx.run(sa.text(f"SET LOCAL lock_timeout = {round(patience * 1000)}"))
                    yield tx
                    await tx.flush()
                    if tx.stirred and not self.sqlite:
                        await tx.run(bell.ring(self.name))
        except StoreUnavailable as error:
            self.note(error)
            raise
        if tx.stirred:
            self.work_waiting.set()

    @contextlib.asynccontextmanager
    async def read(self, *, silence: float = hearing.ALONE) -> AsyncIterator[Transaction]:
        """One consistent snapshot; what is written in it is refused by PostgreSQL and undone by SQLite.

        It is refused when PostgreSQL says nothing for so many seconds; in another loop, where pages are made, for few.
        """
        with unusable.translated(self.url):
            self.require_file()
            elsewhere = self._elsewhere.get(asyncio.get_running_loop())
            silence = silence if elsewhere is None else hearing.ASKED
            async with self._connected(elsewhere or self._reader, silence) as (conn, heard):
                yield Transaction(conn, now=self.clock.now(), sqlite=self.sqlite, hearing=heard)

    @contextlib.asynccontextmanager
    async def _connected(
        self, engine: AsyncEngine, silence: float
    ) -> AsyncIterator[tuple[AsyncConnection, hearing.Hearing | None]]:
        if self.sqlite:
            async with engine.connect() as conn:
                yield conn, None
        else:
            async with hearing.connected(engine, silence) as found:
                yield found

    def read_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let `read` be used in another loop too, of a thread of its own; a connection belongs to one loop."""
        self._elsewhere[loop] = engines.beside(self.url, self._busy_timeout)

    async def stop_reading(self) -> None:
        """Close what `read` has opened in the running loop, which is another than the store's own."""
        await self._elsewhere.pop(asyncio.get_running_loop()).dispose()

    @contextlib.asynccontextmanager
    async def connection(self, *, silence: float) -> AsyncIterator[tuple[Any, hearing.Hearing]]:
        """PostgreSQL only: asyncpg's own connection, outside any transaction, and what is told of answers."""
        import asyncpg  # noqa: PLC0415 - an extra

        with unusable.translated(self.url):
            async with hearing.connected(self._engine, silence) as (conn, heard):
                try:
                    yield (await conn.get_raw_connection()).driver_connection, heard
                except (
                    asyncpg.PostgresError,
                    asyncpg.InterfaceError,
                    asyncpg.InternalClientError,  # the server hung up between two messages
                ) as error:
                    if heard.hung_up:
                        with contextlib.suppress(
                            sa.exc.DBAPIError
                        ):  # so the pool lets go of all it has to that server
                            await conn.exec_driver_sql("SELECT 1")
                    await conn.invalidate()
                    raise unusable.refusal(self.url, error) from error

    @contextlib.asynccontextmanager
    async def turn(self, patience: float | None = None) -> AsyncIterator[None]:
        """Wait until no other writer of this process is at work; SQLite only, PostgreSQL needs no turns."""
        if not self.sqlite:
            yield
            return
        try:
            async with asyncio.timeout(patience):
                await self._turn.acquire()
        except TimeoutError:
            reason = f"other writes have kept the database for over {patience:g} s; look at its disk"
            raise StoreUnavailable(reason) from None
        try:
            yield
        finally:
            self._turn.release()

    def note(self, outcome: object) -> None:
        """Remember whether the database refused what was written last, for those who ask whether all is well."""
        self.failure = (self.clock.now(), str(outcome)) if isinstance(outcome, StoreUnavailable) else None

    def require_file(self) -> None:
        """Raise StoreUnavailable when SQLite's file is gone: it would go on writing to what nobody finds again."""
        if self._file is not None and _identity(self.url.database) != self._file:
            name = self.url.database
            raise StoreUnavailable(
                f"{name} is gone or was replaced: put it back, or start with what is there"
            )

    def _try_file(self) -> None:
        """Raise StoreUnavailable when it cannot be opened: the driver's thread would outlive its loop.

        A new one is its owner's alone, as are the files SQLite puts beside it: it holds the key of the callback tokens.
        """
        with contextlib.suppress(OSError):  # there already, or SQLite says what is wrong
            Path(self.url.database or "").touch(mode=0o600, exist_ok=False)
        try:
            self.connect_sqlite().close()
        except sqlite3.Error as error:
            raise unusable.refusal(self.url, error) from error

    def connect_sqlite(self) -> sqlite3.Connection:
        """SQLite only: a connection of the standard library, for one thread of its own."""
        connection = sqlite3.connect(
            self.url.database or "", timeout=self._busy_timeout, isolation_level=None, check_same_thread=False
        )
        engines.prepare_sqlite(connection, engines.SQLITE_CACHE_LARGE)
        return connection


def _identity(path: str | None) -> tuple[int, int] | None:
    """Return what tells a file from every other, None when there is none."""
    try:
        found = Path(path or "").stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
