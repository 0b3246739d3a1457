"""Members of a ZIP archive, read as streams within limits; nothing is ever extracted by name.

Sizes in the archive's directory are claims: what is inflated is counted, too.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import IO, TYPE_CHECKING

from bot.ci.collect.parse.contract import Broken, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MIB = 1024 * 1024
MOST_MEMBERS = 10_000
MOST_INFLATED = 256 * MIB  # of one member
MOST_INFLATED_IN_ALL = 2048 * MIB
MOST_RATIO = 200  # once over RATIO_FROM
RATIO_FROM = 10 * MIB  # bytes inflated
MOST_DIRECTORY = 16 * MIB  # bytes of the archive's directory
METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
ENCRYPTED = 0x1  # flag bit
PIECE = 256 * 1024
BAD_MEMBER = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, struct.error)


@dataclass(kw_only=True)
class Totals:
    """What was inflated of one archive so far."""

    inflated: int = 0


class Member:
    """One member that may be read. Its name comes from outside: it is data, never a path."""

    def __init__(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo, totals: Totals) -> None:
        self.name = info.filename
        self.size = info.file_size  # as claimed, within the limits
        self._archive = archive
        self._info = info
        self._totals = totals

    def pieces(self) -> Iterator[bytes]:
        """Yield the content; raises Refused over a limit, Broken where it cannot be inflated."""
        read = 0
        try:
            with self._archive.open(self._info) as stream:
                while piece := stream.read(PIECE):
                    read += len(piece)
                    self._totals.inflated += len(piece)
                    check_sizes(self.name, read, self._info.compress_size, self._totals.inflated)
                    yield piece
        except BAD_MEMBER as error:
            raise Broken(f"member {printable(self.name)} ended at byte {read:,}: {error}") from error

    def content(self) -> bytes:
        """Return the whole content."""
        return b"".join(self.pieces())


def read_members(path: Path, wanted: Sequence[str] = ()) -> Iterator[Member]:
    """Yield the members that may be read and match one of the globs, in the order of the directory.

    Read each before you ask for the next: the archive is closed with the last one. Encrypted ones, those packed in an
    unknown way and repeated names are left out. Raises Refused for an archive over a limit of count, size or ratio,
    Broken for one that is none.
    """
    with open_archive(path) as archive:
        for member in readable(archive):
            if not wanted or any(fnmatchcase(member.name.casefold(), glob) for glob in wanted):
                yield member


def open_archive(path: Path) -> zipfile.ZipFile:
    """Open an archive whose directory is of a bearable size; raises Refused and Broken."""
    try:
        with path.open("rb") as file:
            check_directory(file)
        return zipfile.ZipFile(path)
    except BAD_MEMBER as error:
        raise Broken(f"this is no ZIP archive: {error}") from error


def readable(archive: zipfile.ZipFile) -> Iterator[Member]:
    """Yield the members of an open archive that may be read."""
    infos = [info for info in archive.infolist() if not info.is_dir()]
    if len(archive.infolist()) > MOST_MEMBERS:
        raise Refused(f"{len(archive.infolist()):,} members, limit {MOST_MEMBERS:,}")
    names = Counter(info.filename for info in infos)
    allowed = [info for info in infos if refusal(info) is None and names[info.filename] == 1]
    claimed = 0
    for info in allowed:
        claimed += info.file_size
        check_sizes(info.filename, info.file_size, info.compress_size, claimed)
    totals = Totals()
    yield from (Member(archive, info, totals) for info in allowed)


def refusal(info: zipfile.ZipInfo) -> str | None:
    """Return why a member is left out, None where it may be read."""
    if info.flag_bits & ENCRYPTED:
        return "encrypted"
    return None if info.compress_type in METHODS else f"packed by method {info.compress_type}"


def check_sizes(name: str, inflated: int, packed: int, in_all: int) -> None:
    """Raise Refused when a member is too large, or too large for what it is packed in."""
    if inflated > MOST_INFLATED:
        raise Refused(f"member {printable(name)} has over {MOST_INFLATED // MIB} MiB")
    if in_all > MOST_INFLATED_IN_ALL:
        raise Refused(f"over {MOST_INFLATED_IN_ALL // MIB:,} MiB in all")
    if inflated > RATIO_FROM and inflated > MOST_RATIO * max(packed, 1):
        raise Refused(f"zip ratio {inflated // max(packed, 1):,}:1, limit {MOST_RATIO}:1")


END = struct.Struct(
    "<4s4H2LH"
)  # the end record: signature, disks, counts, size and offset of the directory, comment
END64_LOCATOR = b"PK\x06\x07"


def check_directory(file: IO[bytes]) -> int:
    """Return where the directory begins; raises Refused when it is too long to be read: zipfile would read any.

    Archives that need ZIP64 for counts or offsets are over our limits anyway, but writers add its records to any
    archive.
    """
    size = file.seek(0, 2)
    tail = min(size, END.size + 0xFFFF)
    file.seek(size - tail)
    end = file.read(tail)
    at = end.rfind(b"PK\x05\x06")
    if at < 0 or at + END.size > len(end):
        raise Broken("this is no ZIP archive, or its end is missing")
    _, _, _, _, members, directory, start, _ = END.unpack_from(end, at)
    if members != 0xFFFF and members > MOST_MEMBERS:
        raise Refused(f"{members:,} members, limit {MOST_MEMBERS:,}")
    if members == 0xFFFF or 0xFFFFFFFF in {directory, start}:
        members, directory, start = _zip64(file, size - tail + at)
        if members > MOST_MEMBERS:
            raise Refused(f"{members:,} members, limit {MOST_MEMBERS:,}")
    if directory > MOST_DIRECTORY:
        raise Refused(f"a directory of {directory:,} bytes, limit {MOST_DIRECTORY:,}")
    return int(start)


def _zip64(file: IO[bytes], end: int) -> tuple[int, int, int]:
    """Return how many members there are, how long the directory is and where it begins; raises Broken."""
    file.seek(max(end - 20, 0))
    locator = file.read(20)
    if not locator.startswith(END64_LOCATOR):
        raise Broken("the ZIP archive's end record is damaged")
    file.seek(int.from_bytes(locator[8:16], "little"))
    record = file.read(56)
    if not record.startswith(b"PK\x06\x06") or len(record) < 56:
        raise Broken("the ZIP archive's end record is damaged")
    members, directory, start = (int.from_bytes(record[at : at + 8], "little") for at in (32, 40, 48))
    return members, directory, start


def printable(name: str) -> str:
    """Return a member's name for a message: short, on one line, visible."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in name
    )[:100]
