"""The spool: a file beside the database in which deliveries arrive, so that none waits for the database's lock.

SQLite has one writer at a time, and the worker writes for most of the time. Deliveries are acknowledged once they are
durable here; the worker moves them into the inbox, and handles them in the same transaction. A crash in between leaves
them in both, and the inbox takes a GUID once.

A writer appends one record for all deliveries of a commit, and waits for the disk. A reader renames the file first, and
the next writer creates a new one. The file is locked while a record is appended, so that it is never renamed and read
to its end in between.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bot.core.errors import StoreUnavailable
from bot.db.store import file_identity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bot.db.store import Store

Values = tuple[Any, ...]  # of inbox.ARRIVED, or of COLUMNS once compressed

SUFFIX = ".spool"  # of the file, after the database's name
MOVING = ".moving"  # added to that while the file is being moved
# a record begins with one of these: with a byte that no text in UTF-8 has, and so no delivery
MARK = b"\xffSP"
STORED, MOVED = MARK + b"1", MARK + b"0"
HEAD = struct.Struct("<4sIIIQ")  # mark, bytes of the data, their CRC-32, deliveries, epoch milliseconds
TRIES = 10  # to find the file where it was opened: it may be renamed at any moment
SEARCHED = 1024 * 1024  # bytes read at once while looking for the next record

_decoder = msgspec.msgpack.Decoder(list[Values])


@dataclass(frozen=True, kw_only=True)
class Record:
    """Where the deliveries of one commit are in a file."""

    start: int
    size: int  # bytes of the data
    checksum: int
    deliveries: int
    received_at: int  # the first of them; epoch milliseconds

    @property
    def end(self) -> int:
        """The place after it."""
        return self.start + HEAD.size + self.size


class SpoolWriter:
    """Appends to the file, beside any number of other writers; not for several threads at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.path = spool_path(store.url.database or "")
        self._file: int | None = None
        self._identity: tuple[int, int] | None = None

    def append(self, rows: Sequence[Values], *, received_at: int) -> None:
        """Store deliveries durably. Raises StoreUnavailable if they were not stored, or may not have been."""
        data = msgspec.msgpack.encode(rows)
        head = HEAD.pack(STORED, len(data), zlib.crc32(data), len(rows), received_at)
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
        found = os.fstat(self._file)
        self._identity = found.st_dev, found.st_ino
        return self._file, True


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


def find_records(file: int, start: int = 0) -> Iterator[Record]:
    """Yield the records of a file that have not been moved; those that were never written to their end are skipped."""
    size = os.fstat(file).st_size
    while start + HEAD.size <= size:
        mark, *numbers = HEAD.unpack(os.pread(file, HEAD.size, start))
        found = Record(
            start=start, size=numbers[0], checksum=numbers[1], deliveries=numbers[2], received_at=numbers[3]
        )
        if mark not in {STORED, MOVED} or found.end > size:
            start = find_mark(file, start + 1)
            continue
        if mark == STORED:
            yield found
        start = found.end


def read_deliveries(file: int, record: Record) -> list[Values] | None:
    """Return a record's deliveries; None where it is damaged, or was never written to its end."""
    data = os.pread(file, record.size, record.start + HEAD.size)
    return _decoder.decode(data) if zlib.crc32(data) == record.checksum else None


def find_mark(file: int, start: int) -> int:
    """Return where the next record may begin, or the end of the file."""
    while data := os.pread(file, SEARCHED, start):
        found = data.find(MARK)
        if found >= 0:
            return start + found
        start += max(len(data) - len(MARK), 1)
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
