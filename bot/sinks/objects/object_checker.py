"""Compares what is stored here with the objects: which are missing, and whether some have the same content."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING

from bot.sinks.driver import Difference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.core.stored_objects import StoredObject
    from bot.db.exports import Key
    from bot.sinks.driver import Batch, Outgoing
    from bot.sinks.objects.object_store import ObjectStorage


class ObjectChecker:
    """Compares one export. What a folder of the store holds is listed once, and kept as eight bytes a key."""

    def __init__(self, storage: ObjectStorage, batch: Batch) -> None:
        self._storage = storage
        self._export = batch.export
        self._make = batch.make
        self._listed: dict[str, array[int]] = {}

    async def missing(self, items: Sequence[Outgoing]) -> set[Key]:
        """Return which rows lack an object."""
        found = set()
        for item in items:
            if item.row is None:
                continue
            for one in await self._objects(item):
                if not await self._has(one.key):
                    found.add(item.key)
                    break
        return found

    async def differing(self, items: Sequence[Outgoing]) -> list[Difference]:
        """Compare the content of a few."""
        found = []
        for item in items:
            for one in await self._objects(item):
                stored = await self._storage.get(one.key)
                if stored is None:
                    found.append(Difference(key=item.key, words=f"{one.key} is missing"))
                elif not await asyncio.to_thread(_is_same, one, stored):
                    found.append(Difference(key=item.key, words=f"{one.key} has another content"))
        return found

    async def _objects(self, item: Outgoing) -> list[StoredObject]:
        made: list[StoredObject] = await asyncio.to_thread(self._make, self._export, item.row)
        return made

    async def _has(self, key: str) -> bool:
        folder = key.rpartition("/")[0]
        if folder not in self._listed:
            keys = [_number(one) async for one in self._storage.list(folder)]
            self._listed[folder] = array("Q", sorted(keys))
        listed, wanted = self._listed[folder], _number(key)
        place = bisect_left(listed, wanted)
        return place < len(listed) and listed[place] == wanted


def _number(key: str) -> int:
    return int.from_bytes(hashlib.blake2s(key.encode(), digest_size=8).digest(), "big")


def _is_same(one: StoredObject, stored: bytes) -> bool:
    try:
        plain = gzip.decompress(stored)
    except (OSError, EOFError):
        return False
    return plain == b"".join(one.content())
