"""Members of a ZIP archive, read as streams within limits; nothing is ever extracted by name.

Sizes in the archive's directory are claims: what is inflated is counted, too.
"""

from __future__ import annotations

import contextlib
import zlib
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import IO, TYPE_CHECKING

from bot.ci.collect.parse.contract import Broken, Refused
from bot.ci.collect.parse.zip_directory import (
    DESCRIPTOR,
    ENCRYPTED,
    FULL32,
    LOCAL,
    LOCAL_SIGNATURE,
    Entry,
    read_directory,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MIB = 1024 * 1024
MOST_INFLATED = 256 * MIB  # of one member
MOST_INFLATED_IN_ALL = 2048 * MIB
MOST_RATIO = 200  # once over RATIO_FROM
RATIO_FROM = 10 * MIB  # bytes inflated
STORED, DEFLATED = 0, 8  # methods
PIECE = 256 * 1024
SIGNATURES = (b"PK\x03\x04", b"PK\x05\x06")  # of an archive, and of an empty one


@dataclass(kw_only=True)
class Totals:
    """What was inflated of one archive so far."""

    inflated: int = 0


class Archive:
    """An open archive."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.entries = read_directory(file)


class Member:
    """One member that may be read. Its name comes from outside: it is data, never a path."""

    def __init__(self, archive: Archive, entry: Entry, totals: Totals) -> None:
        self.name = entry.name
        self.size = entry.inflated  # as claimed, within the limits
        self._file = archive.file
        self._entry = entry
        self._totals = totals

    def pieces(self) -> Iterator[bytes]:
        """Yield the content; raises Refused over a limit, Broken where it cannot be inflated."""
        entry, size = self._entry, 0
        try:
            for piece in _checked(_inflate(self._file, entry), entry):
                size += len(piece)
                self._totals.inflated += len(piece)
                check_sizes(self.name, size, entry.packed, self._totals.inflated)
                yield piece
        except (zlib.error, Broken) as error:
            raise Broken(f"member {printable(self.name)} ended at byte {size:,}: {error}") from error

    def content(self) -> bytes:
        """Return the whole content."""
        return b"".join(self.pieces())


def _checked(pieces: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
    """Yield the pieces; raises Broken where there are more or less than the directory says, or others."""
    size, checksum = 0, 0
    for piece in pieces:
        size += len(piece)
        checksum = zlib.crc32(piece, checksum)
        if size > entry.inflated:
            raise Broken("it is longer than its directory says")
        yield piece
    if size != entry.inflated or checksum != entry.checksum:
        raise Broken("its length or checksum is wrong")


def _inflate(file: IO[bytes], entry: Entry) -> Iterator[bytes]:
    """Yield a member's content in pieces of some size; raises Broken where it ends early, and zlib's error."""
    at, left = content_start(file, entry), entry.packed
    inflate = zlib.decompressobj(-zlib.MAX_WBITS) if entry.method == DEFLATED else None
    while left:
        file.seek(at)
        packed = file.read(min(PIECE, left))
        if not packed:
            raise Broken("the archive is cut off")
        at, left = at + len(packed), left - len(packed)
        if inflate is None:
            yield packed
            continue
        while packed and not inflate.eof:
            if piece := inflate.decompress(packed, PIECE):
                yield piece
            packed = inflate.unconsumed_tail
        if inflate.eof:
            break
    if inflate is None:
        return
    while not inflate.eof and (piece := inflate.decompress(b"", PIECE)):
        yield piece
    if not inflate.eof or inflate.unused_data or left:
        raise Broken("its content does not end where its directory says")


def content_start(file: IO[bytes], entry: Entry) -> int:
    """Return where a member's content begins; raises Refused where its own header says something else."""
    file.seek(entry.offset)
    header = file.read(LOCAL.size + len(entry.raw_name))
    if not header.startswith(LOCAL_SIGNATURE) or len(header) < LOCAL.size:
        raise Broken("its header is damaged")
    _, _, flags, method, _, _, checksum, packed, inflated, name_length, extra = LOCAL.unpack_from(header)
    same = method == entry.method and header[LOCAL.size :] == entry.raw_name
    same &= name_length == len(entry.raw_name) and (flags ^ entry.flags) & ENCRYPTED == 0
    later = flags & DESCRIPTOR  # sizes and checksum follow the content, and may be zero here
    for value, listed in ((checksum, entry.checksum), (packed, entry.packed), (inflated, entry.inflated)):
        same &= value in {listed, FULL32} or bool(later and value == 0)
    start = int(entry.offset + LOCAL.size + name_length + extra)
    if not same or start + entry.packed > entry.until:
        raise Refused(f"the ZIP archive contradicts itself: two headers of {printable(entry.name)} differ")
    return start


def is_archive(path: Path) -> bool:
    """Whether a file begins as a ZIP archive does."""
    with path.open("rb") as file:
        return file.read(4) in SIGNATURES


def read_members(path: Path, wanted: Sequence[str] = ()) -> Iterator[Member]:
    """Yield the members that may be read and match one of the globs, in the order of the directory.

    Read each before you ask for the next: the archive is closed with the last one. Encrypted ones, those packed in an
    unknown way and repeated names are left out. Raises Refused for an archive over a limit of count, size or ratio or
    with records that contradict each other, Broken for one that is none.
    """
    with open_archive(path) as archive:
        for member in readable_members(archive):
            if not wanted or any(fnmatchcase(member.name.casefold(), glob) for glob in wanted):
                yield member


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open an archive and read its directory; raises Refused and Broken."""
    with path.open("rb") as file:
        yield Archive(file)


def readable_members(archive: Archive) -> Iterator[Member]:
    """Yield the members of an open archive that may be read; raises Refused for one over a limit."""
    files = [entry for entry in archive.entries if not entry.is_folder]
    names = Counter(entry.name for entry in files)
    allowed = [entry for entry in files if refusal(entry) is None and names[entry.name] == 1]
    claimed = 0
    for entry in allowed:
        claimed += entry.inflated
        check_sizes(entry.name, entry.inflated, entry.packed, claimed)
    totals = Totals()
    yield from (Member(archive, entry, totals) for entry in allowed)


def refusal(entry: Entry) -> str | None:
    """Return why a member is left out, None where it may be read."""
    if entry.flags & ENCRYPTED:
        return "encrypted"
    return None if entry.method in {STORED, DEFLATED} else f"packed by method {entry.method}"


def check_sizes(name: str, inflated: int, packed: int, in_all: int) -> None:
    """Raise Refused when a member is too large, or too large for what it is packed in."""
    if inflated > MOST_INFLATED:
        raise Refused(f"member {printable(name)} has over {MOST_INFLATED // MIB} MiB")
    if in_all > MOST_INFLATED_IN_ALL:
        raise Refused(f"over {MOST_INFLATED_IN_ALL // MIB:,} MiB in all")
    if inflated > RATIO_FROM and inflated > MOST_RATIO * max(packed, 1):
        raise Refused(f"zip ratio {inflated // max(packed, 1):,}:1, limit {MOST_RATIO}:1")


def printable(name: str) -> str:
    """Return a member's name for a message: short, on one line, visible."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in name
    )[:100]
