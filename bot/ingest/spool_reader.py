"""Reading the spool: the file is taken from its writers, read in parts, and deleted once its deliveries were moved."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from bot.core.errors import StoreUnavailable
from bot.ingest import spool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bot.db.store import Store
    from bot.ingest.spool import Record, Values

log = structlog.get_logger("bot.ingest.spool_reader")

LOCK = ".lock"  # suffix of the file whose lock is held while deliveries are moved
MOST_MOVED = 8 * 1024 * 1024  # bytes read at once, plus the record that exceeds it
MOST_ROWS = 10_000  # deliveries read at once
LOCK_TIMEOUT = 5.0  # seconds to wait for another process that moves
LOCK_PAUSE = 0.001  # seconds between two tries: one record is written and synchronized meanwhile


@dataclass(frozen=True, kw_only=True)
class Part:
    """Deliveries that are moved together, and the records they are in."""

    rows: list[Values]
    records: list[Record]


class SpoolReader:
    """Reads what has arrived, for one process at a time; not for several threads at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._arriving = spool.spool_path(store.url.database or "")
        self._moving = spool.moving_path(store.url.database or "")
        self._file: int | None = None  # that is being moved
        self._next = 0  # the place in it that was not read yet
        self._lock: int | None = None  # held meanwhile

    def read(self, most: int = MOST_ROWS) -> Part | None:
        """Return what is to be moved next, as much of it as fits into memory; None once nothing is left.

        `most`: deliveries, plus those of the record that exceeds it. Raises StoreUnavailable.
        """
        self._store.require_file()  # nothing is moved where there is no database
        with self._translated():
            while self._lock is not None or self._take():
                if part := self._part(most):
                    return part
                self._moving.unlink()
                self.release()
        return None

    def moved(self, part: Part) -> None:
        """Note that this is in the inbox: were that undone by a power cut, it would be moved again, in vain."""
        with self._translated():
            assert self._file is not None
            for record in part.records:
                os.pwrite(self._file, spool.MOVED, record.start)

    def pause(self) -> None:
        """Let other processes move, and go on here later."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def release(self) -> None:
        """Let other processes move: it is done, or failed, and what was read is read again."""
        self.pause()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def waiting(self) -> tuple[int, int | None]:
        """Return how many deliveries are to be moved, and when the first of them was received (epoch milliseconds)."""
        self._store.require_file()
        try:
            found = records_waiting(self._store.url.database or "")
        except OSError as error:
            raise spool.store_unavailable(self._arriving, error) from error
        return sum(one.deliveries for one in found), min((one.received_at for one in found), default=None)

    def _part(self, most: int) -> Part | None:
        """Read on from where the last part ended."""
        assert self._file is not None
        rows: list[Values] = []
        taken: list[Record] = []
        size, unreadable = 0, 0
        while (
            size <= MOST_MOVED
            and len(rows) < most
            and (record := next(spool.find_records(self._file, self._next), None))
        ):
            found = spool.read_deliveries(self._file, record)
            if found is None:
                unreadable += 1
                self._next = spool.find_mark(self._file, record.start + 1)
                continue
            rows += found
            taken.append(record)
            size += record.size
            self._next = record.end
        if unreadable:
            log.warning("unreadable records of the spool were left out", records=unreadable)
        return Part(rows=rows, records=taken) if taken else None

    def _take(self) -> bool:
        """Take the file from its writers; return False if nothing has arrived."""
        if not (self._moving.exists() or self._arriving.exists()):
            self.release()
            return False
        self._wait_for_lock()
        if self._file is not None:
            if os.fstat(self._file).st_nlink:
                return True
            os.close(self._file)  # another process has moved the rest of it, and deleted it
            self._file = None
        try:
            begun = self._moving.exists()  # a crash or a failure left it
            path = self._moving if begun else self._arriving
            self._file, self._next = os.open(path, os.O_RDWR | os.O_CLOEXEC), 0
            if not begun:
                path.rename(self._moving)
            self._locked(self._file)  # no writer appends to it any more
            fcntl.flock(self._file, fcntl.LOCK_UN)
        except FileNotFoundError:  # another process has moved it meanwhile
            self.release()
            return False
        return True

    def _wait_for_lock(self) -> None:
        path = f"{self._arriving}{LOCK}"
        self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._locked(self._lock)

    def _locked(self, file: int) -> None:
        until = time.monotonic() + LOCK_TIMEOUT
        while True:
            with contextlib.suppress(BlockingIOError):
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if time.monotonic() > until:
                raise StoreUnavailable(
                    f"another process has locked {self._arriving} for over {LOCK_TIMEOUT:g} s"
                )
            time.sleep(LOCK_PAUSE)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.release()
            raise spool.store_unavailable(self._arriving, error) from error
        except StoreUnavailable:
            self.release()
            raise


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)


def _opened(*paths: Path) -> Iterator[int]:
    """Yield those of the files that exist, each once: one may be renamed to the other meanwhile."""
    seen = set()
    for path in paths:
        with contextlib.suppress(FileNotFoundError), _reading(path) as file:
            found = os.fstat(file)
            if (identity := (found.st_dev, found.st_ino)) not in seen:
                seen.add(identity)
                yield file


def records_waiting(database: str) -> list[Record]:
    """Return the records of a database's spool that are to be moved. Raises OSError."""
    files = _opened(spool.spool_path(database), spool.moving_path(database))
    return [record for file in files for record in spool.find_records(file)]


def deliveries_waiting(database: str) -> list[Values]:
    """Return the deliveries that are to be moved, without changing anything. Raises OSError."""
    files = _opened(spool.spool_path(database), spool.moving_path(database))
    return [
        row
        for file in files
        for record in spool.find_records(file)
        for row in spool.read_deliveries(file, record) or ()
    ]
