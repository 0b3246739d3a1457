"""A database that cannot be used: where it is, the reason, the next step; and connections that no longer answer."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from bot.core.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

    from bot.core.clock import Clock

T = TypeVar("T")
RETRY_WAITS = (1.0, 5.0, 15.0)  # seconds
# SQLSTATE classes: no connection, read-only standby, login refused, no database, no schema, deadlock, no permission,
# full, locked, shut down
UNAVAILABLE = ("08", "25006", "28", "3D", "3F", "40", "42501", "53", "55", "57", "58")
RESTORE = "restore a backup (docs/operations.md), or move the file away to start over"
SQLITE_HINTS = {  # by SQLite's primary result code
    sqlite3.SQLITE_NOTADB: RESTORE,
    sqlite3.SQLITE_CORRUPT: RESTORE,
    sqlite3.SQLITE_CANTOPEN: "check that its folder exists and that this user may write in it",
    sqlite3.SQLITE_READONLY: "check that it and its folder belong to this user",
    sqlite3.SQLITE_BUSY: "end whatever else holds it",
    sqlite3.SQLITE_FULL: "free space on its disk",
    sqlite3.SQLITE_IOERR: "check its disk",
}
POSTGRES_HINTS = {  # by the beginning of PostgreSQL's SQLSTATE, longer ones first
    "25006": "DATABASE_URL must name the primary",
    "28": "check user and password in DATABASE_URL, and the server's pg_hba.conf",
    "3D": "create it, or correct its name in DATABASE_URL",
    "3F": "have its user find a schema to make tables in: see search_path in DATABASE_URL",
    "42501": "make its user the owner of the database, or GRANT ALL ON SCHEMA public to it",
    "40": "nothing was changed: try again",
    "53100": "free space on its disk",
    "53": "give it more memory or connections",
    "55": "another session holds a lock on it: try again",
    "57014": "it took too long: check what keeps the server busy",
}
# in seconds
CONNECT_TIMEOUT = 5.0
PING_TIMEOUT = 2.0  # for an idle connection to prove that it still works
REQUEST_TIMEOUT = 5.0  # without an answer while a request waits for ours: GitHub waits 10
BACKGROUND_TIMEOUT = 120.0  # without an answer in background work: a single statement may take long
# of each timeout: a process that was frozen itself finds answers that came meanwhile before it drops the connection
CHECKS = 5


@contextlib.contextmanager
def translated(url: sa.URL) -> Iterator[None]:
    """Raise StoreUnavailable for errors that are the database's fault; others pass."""
    try:
        yield
    except (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.TimeoutError, OSError) as error:
        raise unavailable(url, error) from error
    except sa.exc.DBAPIError as error:  # drivers classify few errors, so the database's own code decides
        code = getattr(error.orig, "sqlstate", None) or ""
        if (
            not error.connection_invalidated
            and not code.startswith(UNAVAILABLE)
            and not _sqlite_hint(error.orig)
        ):
            raise
        raise unavailable(url, error) from error


def unavailable(url: sa.URL, error: BaseException) -> StoreUnavailable:
    """Return the error to raise: which database, why, and the next step, without passwords, statements or values."""
    reason = getattr(error, "orig", None) or error  # SQLAlchemy's own text holds statement and values
    if url.get_backend_name() == "sqlite":
        where, hint = url.database, _sqlite_hint(reason)
    else:
        where, hint = f"{url.host or 'the local server'}, {url.database}", _postgres_hint(reason)
    return StoreUnavailable(f"the database cannot be used: {where}: {reason}" + (f"; {hint}" if hint else ""))


async def retry_until_stored(clock: Clock, write: Callable[[], Awaitable[T]]) -> T:
    """Call `write` up to four times and return its result; raises StoreUnavailable when the last call fails."""
    for wait in RETRY_WAITS:
        try:
            return await write()
        except StoreUnavailable:
            await clock.sleep(wait)
    return await write()


class Watchdog:
    """Drops one connection of the driver that stays silent."""

    def __init__(self, driver: Any, timeout: float) -> None:
        self.expired = False
        self._driver = driver
        self._interval = timeout / CHECKS
        self._silent_checks = 0
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._check)

    def answered(self) -> None:
        """Reset the time: the server has answered."""
        self._silent_checks = 0

    def stop(self) -> None:
        """Stop watching."""
        self._timer.cancel()

    def hang_up(self) -> None:
        """Drop the connection now: whatever waits for it fails."""
        self.stop()
        self.expired = True
        self._driver.terminate()

    def _check(self) -> None:
        self._silent_checks += 1
        if self._silent_checks < CHECKS:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._check)
        else:
            self.hang_up()


@contextlib.asynccontextmanager
async def connected(
    engine: AsyncEngine, answer_within: float
) -> AsyncIterator[tuple[AsyncConnection, Watchdog]]:
    """Yield a watched connection to PostgreSQL; raises TimeoutError after so many seconds without an answer."""
    watchdog: Watchdog | None = None
    try:
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(answer_within):
                conn = await stack.enter_async_context(engine.connect())
            watchdog = Watchdog((await conn.get_raw_connection()).driver_connection, answer_within)
            yield conn, watchdog
    except Exception as error:
        if watchdog is None and isinstance(error, TimeoutError):
            raise TimeoutError(f"no answer for {min(answer_within, CONNECT_TIMEOUT):g} s") from error
        if watchdog is not None and watchdog.expired:
            raise TimeoutError(f"no answer for {answer_within:g} s") from error
        raise
    finally:
        if watchdog is not None:
            watchdog.stop()


def _sqlite_hint(reason: object) -> str:
    """Return the next step by SQLite's result code."""
    return SQLITE_HINTS.get(getattr(reason, "sqlite_errorcode", 0) & 0xFF, "")


def _postgres_hint(reason: object) -> str:
    """Return the next step by PostgreSQL's code; without one it did not even answer."""
    code = getattr(reason, "sqlstate", None) or ""
    hints = (hint for start, hint in POSTGRES_HINTS.items() if code.startswith(start))
    return next(hints, "check that it runs, and DATABASE_URL")
