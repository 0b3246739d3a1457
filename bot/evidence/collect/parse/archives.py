"""ZIP archives: their directory, their members, and the parts of a large one to download.

One reader reads the directory for all uses, and refuses one whose records contradict each other. Members are read as
streams within limits, and never extracted by name.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
import zlib
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import IO, TYPE_CHECKING, NamedTuple, NoReturn

from bot.core.text import name_matches
from bot.evidence.collect.parse.contract import Broken, Ranges, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bot.evidence.collect.parse.contract import ParserInput

MOST_MEMBERS = 10_000
MOST_DIRECTORY = 16 * 1024 * 1024  # bytes
# signature, disks, entries here and in all, size and offset of the directory, length of the comment
END = struct.Struct("<4s4H2LH")
END_SIGNATURE = b"PK\x05\x06"
COMMENT_MOST = 0xFFFF
TAIL = END.size + COMMENT_MOST
LOCATOR = struct.Struct("<4sLQL")  # signature, disk, offset of the ZIP64 end record, disks
LOCATOR_SIGNATURE = b"PK\x06\x07"
# signature, size of the rest, versions, disks, entries here and in all, size and offset of the directory
END64 = struct.Struct("<4sQ2H2L4Q")
END64_SIGNATURE = b"PK\x06\x06"
# signature, versions, flags, method, time, date, checksum, packed, inflated, lengths of name, extra and comment, disk,
# attributes, offset
ENTRY = struct.Struct("<4s6H3L5H2L")
ENTRY_SIGNATURE = b"PK\x01\x02"
LOCAL = struct.Struct("<4s5H3L2H")
LOCAL_SIGNATURE = b"PK\x03\x04"
EXTRA = struct.Struct("<2H")
EXTRA64 = 0x0001
FULL16, FULL32 = 0xFFFF, 0xFFFFFFFF  # the value is in the ZIP64 record
ENCRYPTED, DESCRIPTOR, UTF8 = 0x1, 0x8, 0x800  # flag bits
MIB = 1024 * 1024
MOST_INFLATED = 256 * MIB  # of one member
MOST_INFLATED_IN_ALL = 2048 * MIB
MOST_RATIO = 200  # once over RATIO_FROM
RATIO_FROM = 10 * MIB  # bytes inflated
STORED, DEFLATED = 0, 8  # methods
PIECE = 256 * 1024
SIGNATURES = (b"PK\x03\x04", b"PK\x05\x06")  # of an archive, and of an empty one
SLACK = 1024  # bytes between two members that are fetched along rather than asked for apart


class Entry(NamedTuple):
    """A member as the directory describes it; its name comes from outside."""

    name: str
    raw_name: bytes
    flags: int
    method: int
    checksum: int
    packed: int  # bytes
    inflated: int
    offset: int  # of its local header
    until: int  # where the next member, or the directory, begins

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder, which has no content."""
        return self.name.endswith("/")


class DirectoryPlace(NamedTuple):
    """The place of a directory in its archive."""

    start: int
    size: int
    entries: int


@dataclass(kw_only=True)
class Totals:
    """How much of one archive was inflated so far."""

    inflated: int = 0


def find_directory(file: IO[bytes]) -> DirectoryPlace:
    """Find the directory; raises Refused over a limit or for contradictions, Broken without an end."""
    size = file.seek(0, 2)
    tail_at = max(size - TAIL, 0)
    file.seek(tail_at)
    tail = file.read(TAIL)
    end = _find_end(tail)
    _, disk, first_disk, here, entries, directory, start, _ = END.unpack_from(tail, end)
    place = DirectoryPlace(start=start, size=directory, entries=entries)
    if disk or first_disk or here != entries:
        _contradict("it claims to be one of several parts")
    until = tail_at + end  # where the directory has to end
    locator = file.seek(until - LOCATOR.size) if until >= LOCATOR.size else -1
    if locator >= 0 and (content := file.read(LOCATOR.size)).startswith(LOCATOR_SIGNATURE):
        place, until = _place_zip64(file, content, locator, place)
    if place.entries > MOST_MEMBERS:
        raise Refused(f"{place.entries:,} members, limit {MOST_MEMBERS:,}")
    if place.size > MOST_DIRECTORY:
        raise Refused(f"a directory of {place.size:,} bytes, limit {MOST_DIRECTORY:,}")
    if place.start + place.size != until:
        _contradict("its directory does not end where its end record begins")
    return place


def read_directory(file: IO[bytes]) -> list[Entry]:
    """Return all members, in the order of the directory; raises Refused and Broken."""
    place = find_directory(file)
    file.seek(place.start)
    content = file.read(place.size)
    if len(content) != place.size:
        raise Broken("the ZIP archive's directory is cut off")
    entries: list[Entry] = []
    at = 0
    while at < len(content):
        if content[at : at + 4] != ENTRY_SIGNATURE or at + ENTRY.size > len(content):
            raise Broken(f"the ZIP archive's directory is damaged at entry {len(entries) + 1:,}")
        entry, at = _read_entry(content, at)
        entries.append(entry)
        if len(entries) > place.entries:
            break
    if len(entries) != place.entries:
        _contradict(f"its directory has not the {place.entries:,} entries that its end record counts")
    return _with_ends(entries, place.start)


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
            for piece in _checked_entry(_inflate(self._file, entry), entry):
                size += len(piece)
                self._totals.inflated += len(piece)
                check_sizes(self.name, size, entry.packed, self._totals.inflated)
                yield piece
        except (zlib.error, Broken) as error:
            raise Broken(f"member {printable(self.name)} ended at byte {size:,}: {error}") from error

    def content(self) -> bytes:
        """Return the whole content."""
        return b"".join(self.pieces())


def content_start(file: IO[bytes], entry: Entry) -> int:
    """Return where a member's content begins; raises Refused where its own header contradicts the directory."""
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
    """Whether a file begins like a ZIP archive."""
    with path.open("rb") as file:
        return file.read(4) in SIGNATURES


def read_members(path: Path, wanted: Sequence[str] = ()) -> Iterator[Member]:
    """Yield the members that may be read and match one of the globs, in the order of the directory.

    Read each before asking for the next: the archive is closed after the last. Encrypted ones, those packed in an
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
    allowed = [entry for entry in files if archive_refusal(entry) is None and names[entry.name] == 1]
    claimed = 0
    for entry in allowed:
        claimed += entry.inflated
        check_sizes(entry.name, entry.inflated, entry.packed, claimed)
    totals = Totals()
    yield from (Member(archive, entry, totals) for entry in allowed)


def archive_refusal(entry: Entry) -> str | None:
    """Return why a member is skipped, None where it may be read."""
    if entry.flags & ENCRYPTED:
        return "encrypted"
    return None if entry.method in {STORED, DEFLATED} else f"packed by method {entry.method}"


def check_sizes(name: str, inflated: int, packed: int, in_all: int) -> None:
    """Raise Refused when a member is too large, absolutely or for its packed size."""
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


def plan_ranges(given: ParserInput) -> Ranges:
    """Return the missing parts; `options` says where the part that is there begins."""
    with given.path.open("rb") as file:
        place = find_directory(file)
        if place.start < given.options:
            return Ranges(directory=(place.start, given.options))
        entries = read_directory(file)
    wanted = [entry for entry in entries if name_matches(entry.name.casefold(), given.members)]
    return Ranges(members=list(_joined_ranges(sorted((entry.offset, entry.until) for entry in wanted))))


def _find_end(tail: bytes) -> int:
    """Return where the end record begins; its comment must reach the end of the file."""
    places = []
    at = tail.rfind(END_SIGNATURE)
    while at >= 0:
        if at + END.size <= len(tail) and at + END.size + END.unpack_from(tail, at)[-1] == len(tail):
            places.append(at)
        at = tail.rfind(END_SIGNATURE, 0, at)
    if not places:
        raise Broken("this is no ZIP archive, or its end is missing")
    if len(places) > 1:
        _contradict("it has several end records")
    return places[0]


def _place_zip64(
    file: IO[bytes], content: bytes, locator: int, place: DirectoryPlace
) -> tuple[DirectoryPlace, int]:
    """Return where the directory lies by the ZIP64 record, and where it must end."""
    _, disk, at, disks = LOCATOR.unpack(content)
    if disk or disks != 1 or at + END64.size > locator:
        _contradict("its ZIP64 record is not where it should be")
    file.seek(at)
    record = file.read(END64.size)
    if not record.startswith(END64_SIGNATURE):
        raise Broken("the ZIP archive's end record is damaged")
    _, rest, _, _, disk, first_disk, here, entries, directory, start = END64.unpack(record)
    if disk or first_disk or here != entries or at + 12 + rest != locator:
        _contradict("its ZIP64 record is not where it should be")
    for short, full, long in (
        (place.entries, FULL16, entries),
        (place.size, FULL32, directory),
        (place.start, FULL32, start),
    ):
        if short not in {full, long}:
            _contradict("its two end records differ")
    return DirectoryPlace(start=start, size=directory, entries=entries), at


def _read_entry(content: bytes, at: int) -> tuple[Entry, int]:
    fields = ENTRY.unpack_from(content, at)
    flags, method, checksum = fields[3], fields[4], fields[7]
    name_length, extra_length, comment_length, disk = fields[10:14]
    name_at = at + ENTRY.size
    extra_at = name_at + name_length
    following = extra_at + extra_length + comment_length
    if following > len(content):
        raise Broken("the ZIP archive's directory is cut off")
    raw_name = content[name_at:extra_at]
    inflated, packed, offset = _large(
        content[extra_at : extra_at + extra_length], [fields[9], fields[8], fields[16]]
    )
    if disk:
        _contradict("it claims to be one of several parts")
    entry = Entry(
        name=_decode(raw_name, flags),
        raw_name=raw_name,
        flags=flags,
        method=method,
        checksum=checksum,
        packed=packed,
        inflated=inflated,
        offset=offset,
        until=0,
    )
    return entry, following


def _large(extra: bytes, values: list[int]) -> list[int]:
    """Return sizes and offset, read from the ZIP64 field where needed."""
    if FULL32 not in values:
        return values
    field = next((body for kind, body in _extra_fields(extra) if kind == EXTRA64), b"")
    numbers = iter(struct.unpack_from(f"<{len(field) // 8}Q", field))
    numbers64 = [next(numbers, None) if value == FULL32 else value for value in values]
    if None in numbers64:
        raise Broken("a size in the ZIP archive's directory is missing")
    return [value for value in numbers64 if value is not None]


def _extra_fields(extra: bytes) -> list[tuple[int, bytes]]:
    fields: list[tuple[int, bytes]] = []
    at = 0
    while at + EXTRA.size <= len(extra):
        kind, length = EXTRA.unpack_from(extra, at)
        at += EXTRA.size
        fields.append((kind, extra[at : at + length]))
        at += length
    return fields


def _decode(raw: bytes, flags: int) -> str:
    """Decode a name; bytes that are no text become replacement characters."""
    if flags & UTF8:
        return raw.decode("utf-8", "replace")
    return raw.decode("cp437")


def _with_ends(entries: list[Entry], directory: int) -> list[Entry]:
    """Return the entries with their latest possible ends; raises Refused where two overlap."""
    begins = sorted({entry.offset for entry in entries} | {directory})
    if begins[-1] != directory or len(begins) != len(entries) + 1:
        _contradict("its members overlap")
    following = dict(itertools.pairwise(begins))
    bounded = [entry._replace(until=following[entry.offset]) for entry in entries]
    for entry in bounded:
        if entry.offset + LOCAL.size + len(entry.raw_name) + entry.packed > entry.until:
            _contradict("its members overlap")
    return bounded


def _contradict(how: str) -> NoReturn:
    raise Refused(f"the ZIP archive contradicts itself: {how}")


def _checked_entry(pieces: Iterator[bytes], entry: Entry) -> Iterator[bytes]:
    """Yield the pieces; raises Broken where their size or checksum differs from the directory's."""
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


def _joined_ranges(ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the ranges, joining those that lie close together."""
    begin, end = -1, -1
    for start, until in ranges:
        if begin >= 0 and start <= end + SLACK:
            end = max(end, until)
            continue
        if begin >= 0:
            yield begin, end
        begin, end = start, until
    if begin >= 0:
        yield begin, end
