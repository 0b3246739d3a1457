"""The stored form of a log: compressed in blocks, so that some lines of it cost the same whatever its size.

Blocks of whole lines, each a zstd frame; then an index in JSON, for every block [where its frame begins, the frame's
length, the number of its first line, that line's time in epoch milliseconds or null, where it begins in the plain log];
then 16 bytes: `ootlog1`, a line feed, and where the index begins, in 8 bytes, big-endian.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from operator import itemgetter
from typing import IO, TYPE_CHECKING, NamedTuple

import msgspec

from bot.ci.logs.parse.blocks import BLOCK, LINE_MOST
from bot.ci.logs.parse.cleaning import time_of
from bot.core.errors import OotbotError
from bot.core.zstd import zstd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAGIC = b"ootlog1\n"
END = struct.Struct(">8sQ")
LEVEL = 3
BLOCK_MOST = BLOCK + LINE_MOST  # bytes of a block, inflated
INDEX_MOST = 4 * 1024 * 1024


class Damaged(OotbotError):
    """The stored log cannot be read."""


class Entry(NamedTuple):
    """A block, as the index has it."""

    start: int
    length: int
    first_line: int  # from 1
    first_at: int | None
    plain_start: int


_ENTRIES = msgspec.json.Decoder(list[Entry])


class Writer:
    """Writes a log block by block, and measures it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._entries: list[Entry] = []
        self._at = 0
        self.bytes = 0  # of the plain log
        self.lines = 0

    def add(self, block: bytes) -> None:
        """Append a block of whole lines."""
        frame = zstd.compress(block, LEVEL)
        first_at = time_of(block[:64])
        self._entries.append(Entry(self._at, len(frame), self.lines + 1, first_at, self.bytes))
        self._file.write(frame)
        self._at += len(frame)
        self.bytes += len(block)
        self.lines += block.count(b"\n") + (not block.endswith(b"\n"))

    def finish(self) -> None:
        """Write the index."""
        self._file.write(msgspec.json.encode(self._entries))
        self._file.write(END.pack(MAGIC, self._at))


class Index:
    """The blocks of a stored log; knows which part of the blob holds which lines."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries

    def around(self, first: int, last: int) -> range:
        """Return the blocks that hold these lines, numbered from 1."""
        if not self.entries:
            return range(0)
        return range(self._of(first, 2), self._of(last, 2) + 1)

    def within(self, start: int, end: int) -> range:
        """Return the blocks that hold these bytes of the plain log, the end excluded."""
        if not self.entries or end <= start:
            return range(0)
        return range(self._of(start, 4), self._of(end - 1, 4) + 1)

    def part(self, blocks: range) -> tuple[int, int]:
        """Return where consecutive blocks lie in the blob: start and length."""
        first, last = self.entries[blocks[0]], self.entries[blocks[-1]]
        return first.start, last.start + last.length - first.start

    def inflate(self, blocks: range, part: bytes) -> Iterator[bytes]:
        """Yield the blocks of a part of the blob."""
        begin = self.entries[blocks[0]].start if blocks else 0
        for number in blocks:
            entry = self.entries[number]
            yield inflate_block(part[entry.start - begin : entry.start - begin + entry.length])

    def _of(self, value: int, field: int) -> int:
        return max(bisect_right(self.entries, value, key=itemgetter(field)) - 1, 0)


class StoredLog:
    """A stored log as a source of blocks; `read(start, length)` returns a part of its blob."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read = read
        tail = read(max(size - END.size, 0), END.size)
        start = index_start(tail, size)
        self.index = parse_index(read(start, size - END.size - start))

    def __iter__(self) -> Iterator[bytes]:
        """Yield the blocks in order."""
        for number in range(len(self.index.entries)):
            yield self.block(number)

    def block(self, number: int) -> bytes:
        """Return a block."""
        entry = self.index.entries[number]
        return inflate_block(self._read(entry.start, entry.length))


def index_start(tail: bytes, size: int) -> int:
    """Return where the index begins, from the last bytes of a blob of that size."""
    if len(tail) < END.size:
        raise Damaged("the stored log is too short")
    magic, start = END.unpack(tail[-END.size :])
    if magic != MAGIC or not 0 <= size - END.size - start <= INDEX_MOST:
        raise Damaged("the stored log has no index")
    return int(start)


def parse_index(content: bytes) -> Index:
    """Return the index of a stored log."""
    try:
        return Index(_ENTRIES.decode(content))
    except msgspec.MsgspecError:
        raise Damaged("the index of the stored log cannot be read") from None


def inflate_block(frame: bytes) -> bytes:
    """Return a block."""
    try:
        block = zstd.ZstdDecompressor().decompress(frame, max_length=BLOCK_MOST + 1)
    except zstd.ZstdError:
        raise Damaged("a block of the stored log cannot be read") from None
    if len(block) > BLOCK_MOST:
        raise Damaged("a block of the stored log is too large")
    return block
