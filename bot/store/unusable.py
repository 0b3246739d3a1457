"""When is the database unusable, rather than a statement wrong? Said with its place, and what to do."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

# SQLSTATE classes: no connection, read-only standby, not let in, deadlock, no database, full, not now, shut down
UNUSABLE = ("08", "25006", "28", "3D", "40", "53", "55", "57", "58")
RESTORE = "restore a backup (docs/operations.md), or move the file away to begin anew"
NEXT = {  # by SQLite's primary result code
    sqlite3.SQLITE_NOTADB: RESTORE,
    sqlite3.SQLITE_CORRUPT: RESTORE,
    sqlite3.SQLITE_CANTOPEN: "check that its folder is there and that this user may write in it",
    sqlite3.SQLITE_READONLY: "check that it and its folder belong to this user",
    sqlite3.SQLITE_BUSY: "end what else holds it",
    sqlite3.SQLITE_FULL: "make room on its disk",
    sqlite3.SQLITE_IOERR: "check its disk",
}
NEXT_OF_SERVER = {  # by how PostgreSQL's SQLSTATE begins, the longer first
    "25006": "DATABASE_URL must name the primary",
    "28": "check user and password in DATABASE_URL, and the server's pg_hba.conf",
    "3D": "create it, or correct its name in DATABASE_URL",
    "40": "nothing was changed, and it may be tried again",
    "53100": "make room on its disk",
    "53": "give it more memory or connections",
    "55": "something else holds what was asked for: try again",
    "57014": "it took too long: look at what keeps the server busy",
}


@contextlib.contextmanager
def translated(url: sa.URL) -> Iterator[None]:
    """Raise StoreUnavailable for what only the database can be blamed for; other errors pass."""
    try:
        yield
    except (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.TimeoutError, OSError) as error:
        raise refusal(url, error) from error
    except sa.exc.DBAPIError as error:  # drivers sort few errors: the database's own code does
        code = getattr(error.orig, "sqlstate", None) or ""
        if not error.connection_invalidated and not code.startswith(UNUSABLE) and not _next(error.orig):
            raise
        raise refusal(url, error) from error


def refusal(url: sa.URL, error: BaseException) -> StoreUnavailable:
    """Return the refusal: which database, why, and the next step; never a password, statement or value."""
    reason = getattr(error, "orig", None) or error  # SQLAlchemy's own text holds both
    if url.get_backend_name() == "sqlite":
        where, todo = url.database, _next(reason)
    else:
        where, todo = f"{url.host or 'the local server'}, {url.database}", _next_of_server(reason)
    return StoreUnavailable(f"the database cannot be used: {where}: {reason}" + (f"; {todo}" if todo else ""))


def _next(reason: object) -> str:
    """Return the next step where SQLite's result code tells it."""
    return NEXT.get(getattr(reason, "sqlite_errorcode", 0) & 0xFF, "")


def _next_of_server(reason: object) -> str:
    """Return the next step as PostgreSQL's code tells it; without one it did not even answer."""
    code = getattr(reason, "sqlstate", None) or ""
    told = (todo for start, todo in NEXT_OF_SERVER.items() if code.startswith(start))
    return next(told, "check that it runs, and DATABASE_URL")
