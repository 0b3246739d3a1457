"""A log as blocks of whole lines, plain or stored, so that one of any size is read in little memory.

The stored form is compressed in blocks, so that some lines of it cost the same whatever its size: each block
is a zstd frame; then an index in JSON, for every block [where its frame begins, the frame's length, the
number of its first line, that line's time in epoch milliseconds or null, where it begins in the plain log];
then 16 bytes: `ootlog1`, a line feed, and where the index begins, in 8 bytes, big-endian.
"""

from __future__ import annotations

import io
import struct
from bisect import bisect_right
from operator import itemgetter
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from bot.core.errors import OotbotError
from bot.core.zstd import zstd
from bot.evidence.logs.parse.lines import time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BLOCK = 256 * 1024
LINE_MOST = 1024 * 1024  # bytes kept of one line


class LogSource(Protocol):
    """A log that is read in order, and whose blocks can be read again."""

    def __iter__(self) -> Iterator[bytes]:
        """Yield the blocks in order: each of whole lines, all but the last line with its line end."""
        ...

    def block(self, number: int) -> bytes:
        """Return the block of that number, counted from 0, once it was read in order."""
        ...


class PlainBlock(NamedTuple):
    """Where a block lies in a plain file."""

    start: int
    kept: int  # bytes; fewer than it has where its only line is too long
    size: int  # bytes it takes in the file

    @property
    def cut(self) -> bool:
        """Whether it is a single line that is too long."""
        return self.kept < self.size


class PlainLog:
    """A log as GitHub sends it: a plain file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._pieces: list[PlainBlock] = []

    @classmethod
    def of(cls, content: bytes) -> PlainLog:
        """Return a log of these bytes."""
        return cls(io.BytesIO(content))

    def __iter__(self) -> Iterator[bytes]:
        """Yield the blocks in order."""
        for _, block in self.measured():
            yield block

    def measured(self) -> Iterator[tuple[PlainBlock, bytes]]:
        """Yield the blocks in order, and where they lie."""
        self._pieces = []
        self._file.seek(0)
        rest, start = b"", 0
        while more := self._file.read(BLOCK):
            text = rest + more
            end = text.rfind(b"\n") + 1
            if len(text) > LINE_MOST and not 0 <= text.find(b"\n") <= LINE_MOST:
                piece, block, rest = self._long_line(start, text)
            elif end:
                piece, block, rest = PlainBlock(start, end, end), text[:end], text[end:]
            else:
                rest = text
                continue
            self._pieces.append(piece)
            yield piece, block
            start += piece.size
        if rest:
            self._pieces.append(PlainBlock(start, len(rest), len(rest)))
            yield self._pieces[-1], rest

    def block(self, number: int) -> bytes:
        """Return a block again."""
        start, kept, size = self._pieces[number]
        self._file.seek(start)
        block = self._file.read(kept)
        if kept < size:
            self._file.seek(start + size - 1)
            last = self._file.read(1)
            block += last if last == b"\n" else b""
        return block

    def _long_line(self, start: int, text: bytes) -> tuple[PlainBlock, bytes, bytes]:
        """Return the beginning of a line that is too long, and what follows it."""
        size, kept, more = 0, text[:LINE_MOST], text
        while more:
            if end := more.find(b"\n") + 1:
                return PlainBlock(start, LINE_MOST, size + end), kept + b"\n", more[end:]
            size += len(more)
            more = self._file.read(BLOCK)
        return PlainBlock(start, LINE_MOST, size), kept, b""


MAGIC = b"ootlog1\n"
TRAILER = struct.Struct(">8sQ")
COMPRESSION_LEVEL = 3
BLOCK_MOST = BLOCK + LINE_MOST  # bytes of a block, inflated
INDEX_MOST = 4 * 1024 * 1024


class DamagedLog(OotbotError):
    """The stored log cannot be read."""


class BlockEntry(NamedTuple):
    """A block, as the index has it."""

    start: int
    length: int
    first_line: int  # from 1
    first_at: int | None
    plain_start: int


_ENTRIES = msgspec.json.Decoder(list[BlockEntry])


class LogWriter:
    """Writes a log block by block, and measures it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._entries: list[BlockEntry] = []
        self._at = 0
        self.bytes = 0  # of the plain log
        self.lines = 0

    def add(self, block: bytes) -> None:
        """Append a block of whole lines."""
        frame = zstd.compress(block, COMPRESSION_LEVEL)
        first_at = time_of(block[:64])
        self._entries.append(BlockEntry(self._at, len(frame), self.lines + 1, first_at, self.bytes))
        self._file.write(frame)
        self._at += len(frame)
        self.bytes += len(block)
        self.lines += block.count(b"\n") + (not block.endswith(b"\n"))

    def finish(self) -> None:
        """Write the index."""
        self._file.write(msgspec.json.encode(self._entries))
        self._file.write(TRAILER.pack(MAGIC, self._at))


class LogIndex:
    """The blocks of a stored log; knows which part of the blob holds which lines."""

    def __init__(self, entries: list[BlockEntry]) -> None:
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
        tail = read(max(size - TRAILER.size, 0), TRAILER.size)
        start = index_start(tail, size)
        self.index = parse_index(read(start, size - TRAILER.size - start))

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
    if len(tail) < TRAILER.size:
        raise DamagedLog("the stored log is too short")
    magic, start = TRAILER.unpack(tail[-TRAILER.size :])
    if magic != MAGIC or not 0 <= size - TRAILER.size - start <= INDEX_MOST:
        raise DamagedLog("the stored log has no index")
    return int(start)


def parse_index(content: bytes) -> LogIndex:
    """Return the index of a stored log."""
    try:
        return LogIndex(_ENTRIES.decode(content))
    except msgspec.MsgspecError:
        raise DamagedLog("the index of the stored log cannot be read") from None


def inflate_block(frame: bytes) -> bytes:
    """Return a block."""
    try:
        block = zstd.ZstdDecompressor().decompress(frame, max_length=BLOCK_MOST + 1)
    except zstd.ZstdError:
        raise DamagedLog("a block of the stored log cannot be read") from None
    if len(block) > BLOCK_MOST:
        raise DamagedLog("a block of the stored log is too large")
    return block
