"""Only the wanted members of a large archive: its directory and their bytes are fetched, into a file full of holes.

The file has the archive's size and its bytes in their places, so that the parser opens it as any other.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from bot.ci.collect.artifact_kinds import name_matches
from bot.ci.collect.parse import zip_members
from bot.ci.collect.parse.contract import Broken, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bot.github.client import Location
    from bot.github.download import Downloads

WORTH_FROM = 8 * 1024 * 1024  # bytes of an archive
TAIL = 64 * 1024  # bytes: almost every directory fits
SLACK = 1024  # bytes between two members that are fetched along rather than asked for apart
PIECE = 4 * 1024 * 1024  # bytes of one request


async def fetch_members(
    downloads: Downloads, location: Location, into: Path, *, members: Sequence[str], most: int
) -> int | None:
    """Fetch the members whose names match; returns how many bytes came, None where the store has no ranges.

    Raises what `Downloads.fetch` raises, and Refused or Broken for an archive that is not to be read.
    """
    tail = await downloads.fetch_range(location, -TAIL, 0)
    if tail is None:
        return None
    content, size = tail
    came = len(content)
    await asyncio.to_thread(_place, into, size - len(content), content, size)
    start = await asyncio.to_thread(_directory_start, into)
    if 0 <= start < size - len(content):
        came += await _fetch(downloads, location, into, start, size - len(content))
    ranges = await asyncio.to_thread(_ranges, into, members, start)
    wanted = sum(end - begin for begin, end in ranges)
    if came + wanted > most:
        raise Refused(f"the wanted members have {wanted:,} bytes, limit {most:,}")
    for begin, end in ranges:
        came += await _fetch(downloads, location, into, begin, end)
    return came


async def _fetch(downloads: Downloads, location: Location, into: Path, start: int, end: int) -> int:
    for at in range(start, end, PIECE):
        until = min(at + PIECE, end)
        found = await downloads.fetch_range(location, at, until)
        if found is None or len(found[0]) != until - at:
            raise Broken(f"the store sent another part than the one from byte {at:,}")
        await asyncio.to_thread(_place, into, at, found[0], None)
    return end - start


def _place(path: Path, at: int, content: bytes, size: int | None) -> None:
    """Write some bytes in their place; with `size` into a new file of that size."""
    with path.open("wb" if size is not None else "r+b") as file:
        if size is not None:
            file.truncate(size)
        file.seek(at)
        file.write(content)


def _directory_start(path: Path) -> int:
    with path.open("rb") as file:
        return zip_members.check_directory(file)


def _ranges(path: Path, members: Sequence[str], directory: int) -> list[tuple[int, int]]:
    """Return the parts of the file that hold the wanted members, in order, near ones as one."""
    with zip_members.open_archive(path) as archive:
        begins = sorted({info.header_offset for info in archive.infolist()} | {directory})
        following = dict(itertools.pairwise(begins))
        wanted = sorted(
            (info.header_offset, following.get(info.header_offset, directory))
            for info in archive.infolist()
            if name_matches(info.filename.casefold(), members)
        )
    return list(_joined(wanted))


def _joined(ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
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
