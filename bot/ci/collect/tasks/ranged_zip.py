"""Only the wanted members of a large archive: its directory and their bytes are fetched, into a file full of holes.

The file has the archive's size and its bytes in their places, so that the parser opens it as any other. What the
archive says is read by the parser child alone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from bot.ci.collect.parse.contract import Broken, Ranges, Refused, Request
from bot.core.errors import RetryLater

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bot.ci.collect.parser_pool import ParserPool
    from bot.github.client import Location
    from bot.github.download import Downloads

WORTH_FROM = 8 * 1024 * 1024  # bytes of an archive
TAIL = 128 * 1024  # bytes: the end record with the longest comment, and almost every directory
PIECE = 4 * 1024 * 1024  # bytes of one request
MOST_RANGES = 200  # with more the whole archive is downloaded
MOST_ANSWER = 1024 * 1024  # bytes
RANGES = msgspec.msgpack.Decoder(Ranges)


@dataclass(frozen=True, kw_only=True)
class RangedDownload:
    """An archive of which only some members are downloaded, to a file in a folder of its own."""

    downloads: Downloads
    parsers: ParserPool
    owner: str  # whose turn it is
    location: Location
    into: Path
    members: Sequence[str]  # globs
    most: int  # bytes

    async def fetch(self) -> int | None:
        """Fetch the members; returns how many bytes came, None where the store has no ranges or there are too many.

        Raises what `Downloads.fetch` raises, and Refused or Broken for an archive that is not to be read.
        """
        tail = await self.downloads.fetch_range(self.location, -TAIL, 0)
        if tail is None:
            return None
        content, size = tail
        came, there = len(content), size - len(content)
        await asyncio.to_thread(_place, self.into, there, content, size)
        ranges = await self._plan(there)
        if ranges.directory:
            came += await self._fetch(ranges.directory)
            ranges = await self._plan(ranges.directory[0])
        if ranges.directory or len(ranges.members) > MOST_RANGES:
            return None
        wanted = sum(end - begin for begin, end in ranges.members)
        if came + wanted > self.most:
            raise Refused(f"the wanted members have {wanted:,} bytes, limit {self.most:,}")
        for part in ranges.members:
            came += await self._fetch(part)
        return came

    async def _plan(self, there: int) -> Ranges:
        """Return what is missing of an archive that is there from a byte on."""
        answer = self.into.with_name("ranges")
        request = Request(
            parser="bot.ci.collect.parse.zip_ranges:plan_ranges",
            path=str(self.into.absolute()),
            blob=str(self.into.with_name("no-blob").absolute()),
            answer=str(answer.absolute()),
            options=there,
            members=tuple(self.members),
            most_written=MOST_ANSWER,
        )
        reply = await self.parsers.parse(request, self.owner)
        if reply.state == "refused":
            raise Refused(reply.reason)
        if reply.state == "unable":
            raise RetryLater(reply.reason)
        if reply.state != "parsed":
            raise Broken(reply.reason)
        return RANGES.decode(await asyncio.to_thread(answer.read_bytes))

    async def _fetch(self, part: tuple[int, int]) -> int:
        start, end = part
        for at in range(start, end, PIECE):
            until = min(at + PIECE, end)
            found = await self.downloads.fetch_range(self.location, at, until)
            if found is None or len(found[0]) != until - at:
                raise Broken(f"the store sent another part than the one from byte {at:,}")
            await asyncio.to_thread(_place, self.into, at, found[0], None)
        return end - start


def _place(path: Path, at: int, content: bytes, size: int | None) -> None:
    """Write some bytes in their place; with `size` into a new file of that size."""
    with path.open("wb" if size is not None else "r+b") as file:
        if size is not None:
            file.truncate(size)
        file.seek(at)
        file.write(content)
