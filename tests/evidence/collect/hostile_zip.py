"""Archives that mean two things, or lie about what is in them."""

from __future__ import annotations

import io
import random
import struct
import zipfile

MIB = 1024 * 1024
END = struct.Struct("<4s4H2LH")
END64 = struct.Struct("<4sQ2H2L4Q")
LOCATOR = struct.Struct("<4sLQL")
PADDING = random.Random(7).randbytes(9 * MIB)  # so much that only the wanted members would be fetched


def zipped(members, *, large=False):
    """Return an archive; with `large` one of which only some members are worth fetching."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        if large:
            archive.writestr(zipfile.ZipInfo("padding.bin"), PADDING)
        for name, content in members.items():
            archive.writestr(name, content)
    return made.getvalue()


def split(archive):
    """Return members, directory, and the numbers of the end record."""
    at = archive.rfind(b"PK\x05\x06")
    _, _, _, _, entries, size, start, _ = END.unpack_from(archive, at)
    return archive[:start], archive[start : start + size], entries


def ended(members, directory, entries, *, start=None, comment=b""):
    start = len(members) if start is None else start
    end = END.pack(b"PK\x05\x06", 0, 0, entries, entries, len(directory), start, len(comment))
    return members + directory + end + comment


def with_zip64(archive, *, entries=None, start=None, size=None, short_entries=None, at=None):
    """Return the archive with a ZIP64 record that may say something else than the end record."""
    members, directory, count = split(archive)
    place = len(members) + len(directory)
    long = END64.pack(
        b"PK\x06\x06", 44, 45, 45, 0, 0,
        count if entries is None else entries, count if entries is None else entries,
        len(directory) if size is None else size, len(members) if start is None else start,
    )  # fmt: skip
    locator = LOCATOR.pack(b"PK\x06\x07", 0, place if at is None else at, 1)
    short = count if short_entries is None else short_entries
    end = END.pack(b"PK\x05\x06", 0, 0, short, short, len(directory), len(members), 0)
    return members + directory + long + locator + end


def many_behind_one(archive):
    """Return an archive whose end record counts one entry, and whose ZIP64 record a directory of 2.9 million."""
    return with_zip64(archive, entries=2_900_000, size=2_900_000 * 46, short_entries=1)


def two_ends(archive):
    """Return an archive whose comment is another end record, of other members."""
    members, directory, entries = split(archive)
    second = END.pack(b"PK\x05\x06", 0, 0, 0, 0, 0, 0, 0)
    return ended(members, directory, entries, comment=second)


def renamed(archive, old, new, *, directory_only=False):
    members, directory, entries = split(archive)
    assert len(old) == len(new)
    if not directory_only:
        members = members.replace(old, new)
    return ended(members, directory.replace(old, new), entries)


def one_entry_less(archive):
    members, directory, entries = split(archive)
    return ended(members, directory, entries - 1)


def overlapping(archive):
    """Return an archive of which two entries lead to one member."""
    members, directory, entries = split(archive)
    last = directory.rfind(b"PK\x01\x02")
    return ended(members, directory + directory[last:], entries + 1)
