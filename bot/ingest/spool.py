"""The spool: a SQLite file beside the database in which deliveries arrive, so that none waits for the database's lock.

SQLite has one writer at a time, and the worker writes for most of the time. Deliveries are acknowledged once they are
durable here; the worker moves them into the inbox and deletes them here. A crash in between leaves them in both, and
the inbox takes a GUID once. One row holds the deliveries of one commit: writing it is one call to SQLite.
"""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from bot.core.errors import StoreUnavailable
from bot.db import db_errors
from bot.db.store import file_identity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.store import Store

Values = tuple[Any, ...]  # of inbox.COLUMNS

log = structlog.get_logger("bot.ingest.spool")

SUFFIX = ".spool"  # of the file, after the database's name
MOST_MOVED = 8 * 1024 * 1024  # bytes read at once, plus the row that exceeds it
SHRINK_FROM = 64 * 1024 * 1024  # bytes of an empty file that are given back to the system
TABLE = (
    "CREATE TABLE IF NOT EXISTS spooled (id INTEGER PRIMARY KEY AUTOINCREMENT, deliveries INTEGER NOT NULL, "
    "received_at INTEGER NOT NULL, data BLOB NOT NULL)"
)


@dataclass(frozen=True, kw_only=True)
class Spooled:
    """The deliveries of one commit."""

    id: int
    rows: list[Values]


class Spool:
    """The file, for any number of processes; one thread at a time uses one of these objects.

    What is written without `durable` may be undone by a power cut.
    """

    def __init__(self, store: Store, *, durable: bool) -> None:
        self._store = store
        self._durable = durable
        self.path = path_of(store.url.database or "")
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    def append(self, rows: Sequence[Values], *, received_at: int) -> None:
        """Store deliveries, durably: all of them or none. Raises StoreUnavailable."""
        data = msgspec.msgpack.encode(rows)
        with self._connected() as connection:  # every statement is a transaction of its own
            connection.execute(
                "INSERT INTO spooled (deliveries, received_at, data) VALUES (?, ?, ?)",
                (len(rows), received_at, data),
            )
            if file_identity(self.path) != self._file:  # since it was opened
                raise StoreUnavailable(f"{self.path} was deleted or replaced")

    def read(self) -> list[Spooled]:
        """Return what arrived first, as much of it as fits into memory."""
        found: list[Spooled] = []
        size = 0
        with self._connected() as connection:
            for number, data in connection.execute("SELECT id, data FROM spooled ORDER BY id"):
                found.append(Spooled(id=number, rows=unpack(data)))
                size += len(data)
                if size > MOST_MOVED:
                    break
        return found

    def remove(self, up_to: int) -> None:
        """Delete what has been moved: undone by a power cut, it is moved again, in vain."""
        with self._connected() as connection:
            connection.execute("DELETE FROM spooled WHERE id <= ?", (up_to,))
            self._shrink(connection)

    def waiting(self) -> tuple[int, int | None]:
        """Return how many deliveries are to be moved, and when the first of them was received (epoch milliseconds)."""
        with self._connected() as connection:
            number, oldest = connection.execute(
                "SELECT coalesce(sum(deliveries), 0), min(received_at) FROM spooled"
            ).fetchone()
            return number, oldest

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def _connected(self) -> Any:
        self._store.require_file()  # no spool where there is no database
        try:
            if self._connection is not None and file_identity(self.path) != self._file:
                log.error(
                    "the spool was deleted or replaced: deliveries in it may be lost", file=str(self.path)
                )
                self.close()
            yield self._connection or self._open()
        except sqlite3.Error as error:
            self.close()  # its state is unknown
            raise db_errors.unavailable(self._store.url.set(database=str(self.path)), error) from error
        except StoreUnavailable:
            self.close()
            raise

    def _open(self) -> sqlite3.Connection:
        with contextlib.suppress(OSError):  # it exists, or SQLite reports what is wrong
            self.path.touch(mode=0o600, exist_ok=False)
        connection = self._connection = self._store.connect_sqlite(self.path)
        if not self._durable:
            connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA temp_store=MEMORY")  # there may be no folder for temporary files
        connection.execute(TABLE)
        self._file = file_identity(self.path)
        return connection

    def _shrink(self, connection: sqlite3.Connection) -> None:
        """Give the space of a long backlog back once it is gone."""
        pages, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size")
        )
        if pages * size >= SHRINK_FROM and not connection.execute("SELECT 1 FROM spooled").fetchone():
            connection.execute("VACUUM")


def unpack(data: bytes) -> list[Values]:
    """Return the deliveries of one commit."""
    return [tuple(row) for row in msgspec.msgpack.decode(data)]


def path_of(database: str) -> Path:
    """Return the spool's path of a SQLite database."""
    return Path(f"{database}{SUFFIX}")
