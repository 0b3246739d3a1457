"""Read an archive of deliveries hour by hour, and compare each body with its manifest."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import zlib
from typing import TYPE_CHECKING

import msgspec

from bot.core.errors import GiveUp
from bot.ingest.exports import MANIFESTS, read_manifest
from bot.ingest.tables import DeliveryRow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from bot.ingest.exports import ManifestLine
    from bot.sinks.objects import ObjectStorage

TOGETHER = 50  # deliveries
AT_ONCE = 16  # objects read


class ArchiveReader:
    """The deliveries of an archive, oldest hour first."""

    def __init__(self, storage: ObjectStorage) -> None:
        self._storage = storage
        self.damaged: list[str] = []  # what could not be read, with the reason

    async def batches(self) -> AsyncIterator[list[DeliveryRow]]:
        """Yield each delivery once, in batches; raises GiveUp where there is no archive."""
        hours: dict[str, list[str]] = {}
        async for key in self._storage.list(MANIFESTS):
            hours.setdefault(key.rpartition("/")[0], []).append(key)
        if not hours:
            raise GiveUp(f"{self._storage.url} holds no archive: there is nothing below {MANIFESTS}/")
        for hour in sorted(hours):
            lines = await self._lines_of(hours[hour])
            for start in range(0, len(lines), TOGETHER):
                yield await self._read(lines[start : start + TOGETHER])

    async def _lines_of(self, keys: Sequence[str]) -> list[ManifestLine]:
        by_guid: dict[str, ManifestLine] = {}
        for key in sorted(keys):
            content = await self._storage.get(key) or b""
            try:
                by_guid |= {line["guid"]: line for line in read_manifest(content.splitlines())}
            except msgspec.DecodeError as error:
                self.damaged.append(f"{key}: {error}")
        return sorted(by_guid.values(), key=lambda line: (line["received_at"], line["guid"]))

    async def _read(self, lines: Sequence[ManifestLine]) -> list[DeliveryRow]:
        free = asyncio.Semaphore(AT_ONCE)

        async def body_of(line: ManifestLine) -> bytes | None:
            async with free:
                return await self._body(line)

        bodies = await asyncio.gather(*map(body_of, lines))
        return [_delivery(line, body) for line, body in zip(lines, bodies, strict=True) if body is not None]

    async def _body(self, line: ManifestLine) -> bytes | None:
        stored = await self._storage.get(line["key"])
        if stored is None:
            self.damaged.append(f"{line['key']} is missing")
            return None
        try:
            body = gzip.decompress(stored)
        except (OSError, EOFError, zlib.error):
            self.damaged.append(f"{line['key']} is not a gzip file")
            return None
        if hashlib.sha256(body).hexdigest() != line["sha256"]:
            self.damaged.append(f"{line['key']} differs from what was archived")
            return None
        return body


def _delivery(line: ManifestLine, body: bytes) -> DeliveryRow:
    return DeliveryRow(
        id=0,
        guid=line["guid"],
        event=line["event"],
        action=line["action"],
        repo=line["repo"],
        source="archive",
        received_at=line["received_at"],
        state="handled",
        attempts=1,
        due_at=line["received_at"],
        error=None,
        codec=None,
        body=body,
    )
