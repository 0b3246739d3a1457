"""A log as blocks of whole lines, so that one of any size is read in little memory."""

from __future__ import annotations

import io
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK = 256 * 1024
LINE_MOST = 1024 * 1024  # bytes kept of one line


class Source(Protocol):
    """A log that can be read in order, and any of its blocks again."""

    def __iter__(self) -> Iterator[bytes]:
        """Yield the blocks in order: each of whole lines, all but the last line with its line end."""
        ...

    def block(self, number: int) -> bytes:
        """Return the block of that number, counted from 0, once it was read in order."""
        ...


class Piece(NamedTuple):
    """Where a block lies in a plain file."""

    start: int
    kept: int  # bytes; fewer than it has where its only line is too long
    size: int  # bytes it takes in the file

    @property
    def cut(self) -> bool:
        """Whether it is one line that is too long."""
        return self.kept < self.size


class PlainLog:
    """A log as GitHub sends it: a plain file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._pieces: list[Piece] = []

    @classmethod
    def of(cls, content: bytes) -> PlainLog:
        """Return a log of these bytes."""
        return cls(io.BytesIO(content))

    def __iter__(self) -> Iterator[bytes]:
        """Yield the blocks in order."""
        for _, block in self.measured():
            yield block

    def measured(self) -> Iterator[tuple[Piece, bytes]]:
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
                piece, block, rest = Piece(start, end, end), text[:end], text[end:]
            else:
                rest = text
                continue
            self._pieces.append(piece)
            yield piece, block
            start += piece.size
        if rest:
            self._pieces.append(Piece(start, len(rest), len(rest)))
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

    def _long_line(self, start: int, text: bytes) -> tuple[Piece, bytes, bytes]:
        """Return the beginning of a line that is too long, and what follows it."""
        size, kept, more = 0, text[:LINE_MOST], text
        while more:
            if end := more.find(b"\n") + 1:
                return Piece(start, LINE_MOST, size + end), kept + b"\n", more[end:]
            size += len(more)
            more = self._file.read(BLOCK)
        return Piece(start, LINE_MOST, size), kept, b""
