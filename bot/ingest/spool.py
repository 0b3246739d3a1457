"""The spool: a file beside the database in which deliveries arrive, so that none waits for the database's lock."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from bot.core.errors import StoreUnavailable
from bot.db.store import file_identity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bot.db.store import Store

DeliveryValues = tuple[Any, ...]  # of inbox.ARRIVED, or of COLUMNS once compressed

SUFFIX = ".spool"  # of the file, after the database's name
MOVING = ".moving"  # added to that while the file is being moved
# a record begins with one of these: with a byte that no text in UTF-8 has, and so no delivery
RECORD_MARK = b"\xffSP"
STORED, MOVED = RECORD_MARK + b"1", RECORD_MARK + b"0"
# mark, bytes of the data, their CRC-32, deliveries, epoch milliseconds
RECORD_HEAD = struct.Struct("<4sIIIQ")
TRIES = 10  # to find the file where it was opened: it may be renamed at any moment
SEARCHED = 1024 * 1024  # bytes read at once while looking for the next record

_decoder = msgspec.msgpack.Decoder(list[DeliveryValues])
log = structlog.get_logger("bot.ingest.spool")

LOCK = ".lock"  # suffix of the file whose lock is held while deliveries are moved
MOST_MOVED = 8 * 1024 * 1024  # bytes read at once, plus the record that exceeds it
MOST_ROWS = 10_000  # deliveries read at once
LOCK_TIMEOUT = 5.0  # seconds to wait for another process that moves
LOCK_PAUSE = 0.001  # seconds between two tries: one record is written and synchronized meanwhile


@dataclass(frozen=True, kw_only=True)
class Record:
    """The place in a file of the deliveries that were committed together."""

    start: int
    size: int  # bytes of the data
    checksum: int
    deliveries: int
    received_at: int  # the first of them; epoch milliseconds

    @property
    def end(self) -> int:
        """The place after it."""
        return self.start + RECORD_HEAD.size + self.size


@dataclass(frozen=True, kw_only=True)
class Part:
    """Deliveries that are moved together, and the records they are in."""

    rows: list[DeliveryValues]
    records: list[Record]


class SpoolWriter:
    """Appends to the file, beside any number of other writers; not for several threads at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.path = spool_path(store.url.database or "")
        self._file: int | None = None
        self._identity: tuple[int, int] | None = None

    def append(self, rows: Sequence[DeliveryValues], *, received_at: int) -> None:
        """Store deliveries durably. Raises StoreUnavailable if they were not stored, or may not have been."""
        data = msgspec.msgpack.encode(rows)
        head = RECORD_HEAD.pack(STORED, len(data), zlib.crc32(data), len(rows), received_at)
        self._store.require_file()  # no spool where there is no database
        try:
            for _ in range(TRIES):
                file, is_new = self._opened()
                if self._appended(file, head, data):
                    if is_new:
                        _sync_folder(self.path)
                    return
        except OSError as error:
            self.close()  # readers skip a part of a record
            raise store_unavailable(self.path, error) from error
        raise StoreUnavailable(f"{self.path} is replaced again and again")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _appended(self, file: int, head: bytes, data: bytes) -> bool:
        """Write a record, unless the file has been renamed: then it may have been read to its end."""
        fcntl.flock(file, fcntl.LOCK_SH)  # others may write, too
        try:
            if file_identity(self.path) != self._identity:
                return False
            _write(file, head, data)
            return True
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    def _opened(self) -> tuple[int, bool]:
        """Return the file, and whether its name may not be durable yet."""
        if self._file is not None and file_identity(self.path) == self._identity:
            return self._file, False
        self.close()
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        status = os.fstat(self._file)
        self._identity = status.st_dev, status.st_ino
        return self._file, True


def find_records(file: int, start: int = 0) -> Iterator[Record]:
    """Yield the records of a file that have not been moved; those that were never written to their end are skipped."""
    size = os.fstat(file).st_size
    while start + RECORD_HEAD.size <= size:
        mark, *numbers = RECORD_HEAD.unpack(os.pread(file, RECORD_HEAD.size, start))
        record = Record(
            start=start, size=numbers[0], checksum=numbers[1], deliveries=numbers[2], received_at=numbers[3]
        )
        if mark not in {STORED, MOVED} or record.end > size:
            start = find_mark(file, start + 1)
            continue
        if mark == STORED:
            yield record
        start = record.end


def read_deliveries(file: int, record: Record) -> list[DeliveryValues] | None:
    """Return a record's deliveries; None where it is damaged, or was never written to its end."""
    data = os.pread(file, record.size, record.start + RECORD_HEAD.size)
    return _decoder.decode(data) if zlib.crc32(data) == record.checksum else None


def find_mark(file: int, start: int) -> int:
    """Return where the next record may begin, or the end of the file."""
    while data := os.pread(file, SEARCHED, start):
        at = data.find(RECORD_MARK)
        if at >= 0:
            return start + at
        start += max(len(data) - len(RECORD_MARK), 1)
    return start


def store_unavailable(path: Path, error: OSError) -> StoreUnavailable:
    """Return the error to raise for a spool that cannot be used."""
    return StoreUnavailable(
        f"the database cannot be used: {path}: {error.strerror or error}; check its disk and its folder"
    )


def spool_path(database: str) -> Path:
    """Return the spool's path of a SQLite database."""
    return Path(f"{database}{SUFFIX}")


def moving_path(database: str) -> Path:
    """Return the path of what is being moved into a SQLite database."""
    return Path(f"{database}{SUFFIX}{MOVING}")


class SpoolReader:
    """Reads what has arrived, for one process at a time; not for several threads at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._arriving = spool_path(store.url.database or "")
        self._moving = moving_path(store.url.database or "")
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
        """Mark deliveries as moved; if a power cut undoes that, they are moved again without effect."""
        with self._translated():
            assert self._file is not None
            for record in part.records:
                os.pwrite(self._file, MOVED, record.start)

    def pause(self) -> None:
        """Let other processes move deliveries, and continue from here later."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def release(self) -> None:
        """Let other processes move deliveries: moving is done, or has failed and everything is read again."""
        self.pause()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def waiting(self) -> tuple[int, int | None]:
        """Return how many deliveries are to be moved, and when the first of them was received (epoch milliseconds)."""
        self._store.require_file()
        try:
            parts = records_waiting(self._store.url.database or "")
        except OSError as error:
            raise store_unavailable(self._arriving, error) from error
        return sum(part.deliveries for part in parts), min((part.received_at for part in parts), default=None)

    def _part(self, most: int) -> Part | None:
        """Read on from where the last part ended."""
        assert self._file is not None
        rows: list[DeliveryValues] = []
        taken: list[Record] = []
        size, unreadable = 0, 0
        while (
            size <= MOST_MOVED
            and len(rows) < most
            and (record := next(find_records(self._file, self._next), None))
        ):
            deliveries = read_deliveries(self._file, record)
            if deliveries is None:
                unreadable += 1
                self._next = find_mark(self._file, record.start + 1)
                continue
            rows += deliveries
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
            raise store_unavailable(self._arriving, error) from error
        except StoreUnavailable:
            self.release()
            raise


def records_waiting(database: str) -> list[Record]:
    """Return the records of a database's spool that are to be moved. Raises OSError."""
    files = _opened(spool_path(database), moving_path(database))
    return [record for file in files for record in find_records(file)]


def deliveries_waiting(database: str) -> list[DeliveryValues]:
    """Return the deliveries that are to be moved, without changing anything. Raises OSError."""
    files = _opened(spool_path(database), moving_path(database))
    return [
        row for file in files for record in find_records(file) for row in read_deliveries(file, record) or ()
    ]


def _write(file: int, head: bytes, data: bytes) -> None:
    """Append a record, durably: Linux does both in one call, so that this thread waits for the interpreter once."""
    if sys.platform == "linux":  # the file was opened to append: the place is of no account
        written = os.pwritev(file, (head, data), 0, os.RWF_DSYNC)
    else:
        written = os.writev(file, (head, data))
        os.fsync(file)
    if written < len(head) + len(data):
        os.write(file, data[-1:])  # raises what is wrong, such as a full disk
        raise OSError(f"only a part of {len(data)} bytes could be written")


def _sync_folder(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)


def _opened(*paths: Path) -> Iterator[int]:
    """Yield the files that exist, each once: one may be renamed to the other in the meantime."""
    seen = set()
    for path in paths:
        with contextlib.suppress(FileNotFoundError), _reading(path) as file:
            status = os.fstat(file)
            if (identity := (status.st_dev, status.st_ino)) not in seen:
                seen.add(identity)
                yield file
