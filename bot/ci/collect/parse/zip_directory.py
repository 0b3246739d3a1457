"""The directory of a ZIP archive, read by one reader for all uses, and refused where its records contradict each other.

Other readers disagree about such archives: which end record counts, how many entries there are, where they lie. An
archive that means two things is hostile or damaged, so none is guessed at.
"""

from __future__ import annotations

import itertools
import struct
from typing import IO, NamedTuple, NoReturn

from bot.ci.collect.parse.contract import Broken, Refused

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


class Place(NamedTuple):
    """Where a directory lies."""

    start: int
    size: int
    entries: int


def find_directory(file: IO[bytes]) -> Place:
    """Return where the directory lies; raises Refused over a limit or for contradictions, Broken without an end."""
    size = file.seek(0, 2)
    tail_at = max(size - TAIL, 0)
    file.seek(tail_at)
    tail = file.read(TAIL)
    end = _find_end(tail)
    _, disk, first_disk, here, entries, directory, start, _ = END.unpack_from(tail, end)
    place = Place(start=start, size=directory, entries=entries)
    if disk or first_disk or here != entries:
        _contradict("it claims to be one of several parts")
    until = tail_at + end  # where the directory has to end
    locator = file.seek(until - LOCATOR.size) if until >= LOCATOR.size else -1
    if locator >= 0 and (content := file.read(LOCATOR.size)).startswith(LOCATOR_SIGNATURE):
        place, until = _place64(file, content, locator, place)
    if place.entries > MOST_MEMBERS:
        raise Refused(f"{place.entries:,} members, limit {MOST_MEMBERS:,}")
    if place.size > MOST_DIRECTORY:
        raise Refused(f"a directory of {place.size:,} bytes, limit {MOST_DIRECTORY:,}")
    if place.start + place.size != until:
        _contradict("its directory does not end where its end record begins")
    return place


def _find_end(tail: bytes) -> int:
    """Return where the end record begins: its comment has to reach to the end of the file."""
    found = []
    at = tail.rfind(END_SIGNATURE)
    while at >= 0:
        if at + END.size <= len(tail) and at + END.size + END.unpack_from(tail, at)[-1] == len(tail):
            found.append(at)
        at = tail.rfind(END_SIGNATURE, 0, at)
    if not found:
        raise Broken("this is no ZIP archive, or its end is missing")
    if len(found) > 1:
        _contradict("it has several end records")
    return found[0]


def _place64(file: IO[bytes], content: bytes, locator: int, place: Place) -> tuple[Place, int]:
    """Return where the directory lies by the ZIP64 record, and where it has to end."""
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
    return Place(start=start, size=directory, entries=entries), at


def read_directory(file: IO[bytes]) -> list[Entry]:
    """Return all members, in the order of the directory; raises Refused and Broken."""
    place = find_directory(file)
    file.seek(place.start)
    content = file.read(place.size)
    if len(content) != place.size:
        raise Broken("the ZIP archive's directory is cut off")
    found: list[Entry] = []
    at = 0
    while at < len(content):
        if content[at : at + 4] != ENTRY_SIGNATURE or at + ENTRY.size > len(content):
            raise Broken(f"the ZIP archive's directory is damaged at entry {len(found) + 1:,}")
        entry, at = _read_entry(content, at)
        found.append(entry)
        if len(found) > place.entries:
            break
    if len(found) != place.entries:
        _contradict(f"its directory has not the {place.entries:,} entries that its end record counts")
    return _with_ends(found, place.start)


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
    """Return sizes and offset, those that need it by the ZIP64 field."""
    if FULL32 not in values:
        return values
    field = next((body for kind, body in _extra_fields(extra) if kind == EXTRA64), b"")
    numbers = iter(struct.unpack_from(f"<{len(field) // 8}Q", field))
    found = [next(numbers, None) if value == FULL32 else value for value in values]
    if None in found:
        raise Broken("a size in the ZIP archive's directory is missing")
    return [value for value in found if value is not None]


def _extra_fields(extra: bytes) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    at = 0
    while at + EXTRA.size <= len(extra):
        kind, length = EXTRA.unpack_from(extra, at)
        at += EXTRA.size
        found.append((kind, extra[at : at + length]))
        at += length
    return found


def _decode(raw: bytes, flags: int) -> str:
    """Return a name as text; what is no text stands as a replacement character."""
    if flags & UTF8:
        return raw.decode("utf-8", "replace")
    return raw.decode("cp437")


def _with_ends(entries: list[Entry], directory: int) -> list[Entry]:
    """Return the entries, each with where it ends at the latest; raises Refused where two overlap."""
    begins = sorted({entry.offset for entry in entries} | {directory})
    if begins[-1] != directory or len(begins) != len(entries) + 1:
        _contradict("its members overlap")
    following = dict(itertools.pairwise(begins))
    found = [entry._replace(until=following[entry.offset]) for entry in entries]
    for entry in found:
        if entry.offset + LOCAL.size + len(entry.raw_name) + entry.packed > entry.until:
            _contradict("its members overlap")
    return found


def _contradict(how: str) -> NoReturn:
    raise Refused(f"the ZIP archive contradicts itself: {how}")
