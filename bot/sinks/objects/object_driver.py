"""The driver of object stores: every row becomes objects, and writing one again changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import secrets
from collections import defaultdict
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, TypeVar, cast
from urllib.parse import quote

from bot.sinks.driver import Refusal, SinkAway
from bot.sinks.objects.object_checker import ObjectChecker
from bot.sinks.objects.object_store import ObjectRefused, ObjectStorage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from bot.core.stored_objects import StoredObject
    from bot.sinks.driver import Batch, Outgoing
    from bot.sinks.settings import SinkSettings

T = TypeVar("T")
Packed = bytes | IO[bytes]
AT_ONCE = 64  # rows in flight: a store may answer each after 50 ms only
IN_MEMORY = 256 * 1024  # bytes of an object, compressed; a larger one is put together in a file
LEVEL = 6
ARCHIVED = ".gz"  # ends the keys of objects that are gzip files; others are encoded so on their way


def open_objects(settings: SinkSettings) -> ObjectDriver:
    """Return the driver of a sink."""
    return ObjectDriver(ObjectStorage(settings.options.url))


class ObjectDriver:
    """Writes rows as objects."""

    def __init__(self, storage: ObjectStorage) -> None:
        self._storage = storage

    async def send(self, batch: Batch) -> Sequence[Refusal]:
        """Write a batch; returns the rows of which an object is refused."""
        written: list[StoredObject] = []
        refused: list[Refusal] = []

        async def send_row(item: Outgoing) -> None:
            packed = await asyncio.to_thread(_pack_row, batch, item)
            try:
                for one, content in packed:
                    await (self._storage.delete(one.key) if content is None else self._put(one, content))
            except ObjectRefused as error:
                refused.append(Refusal(key=item.key, reason=str(error)))
            else:
                written.extend(one for one, content in packed if content is not None)

        await _for_each([item for item in batch.items if item.row is not None], send_row)
        lists = await self._list_in_manifests(written)
        await self._storage.sync([*(one.key for one in written), *lists])
        return refused

    def checker(self, batch: Batch) -> ObjectChecker:
        """Return what compares an export with the objects."""
        return ObjectChecker(self._storage, batch)

    async def check_access(self) -> None:
        """Write and delete an object."""
        key = f"doctor/{secrets.token_hex(8)}"
        await self._storage.put(key, b"written by ootbot doctor", attributes={})
        await self._storage.delete(key)

    async def close(self) -> None:
        """Do nothing: the connections end with the program."""

    async def _put(self, one: StoredObject, packed: Packed) -> None:
        attributes = {"Content-Type": "application/gzip" if one.key.endswith(ARCHIVED) else one.content_type}
        if not one.key.endswith(ARCHIVED):
            attributes["Content-Encoding"] = "gzip"
        attributes |= {name: quote(value, safe="/ ") for name, value in one.metadata.items()}
        with contextlib.nullcontext() if isinstance(packed, bytes) else packed:
            await self._storage.put(one.key, packed, attributes=attributes, create=one.immutable)

    async def _list_in_manifests(self, written: Iterable[StoredObject]) -> list[str]:
        """Add a part to the manifests of what was written, named by its content; returns their keys."""
        lines: defaultdict[str, set[bytes]] = defaultdict(set)
        for one in written:
            if one.listed:
                lines[one.listed.manifest].add(one.listed.line)
        keys = []
        for folder, some in sorted(lines.items()):
            part = b"".join(line + b"\n" for line in sorted(some))
            key = f"{folder}/{hashlib.sha256(part).hexdigest()[:32]}.jsonl"
            await self._storage.put(key, part, attributes={"Content-Type": "application/jsonl"}, create=True)
            keys.append(key)
        return keys


async def _for_each(items: Sequence[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Do something with each, several at once; the first that fails ends all."""
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await work(item)

    workers = [asyncio.create_task(worker()) for _ in range(min(AT_ONCE, len(items)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for one in workers:
            one.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


def _pack_row(batch: Batch, item: Outgoing) -> list[tuple[StoredObject, Packed | None]]:
    """Return a row's objects, each with its content compressed; without, where it is to be deleted."""
    objects: list[StoredObject] = batch.make(batch.export, item.row)
    try:
        return [(one, None if item.deleted else _compress(one)) for one in objects]
    except OSError as error:  # a large one is put together on this machine's disk
        raise SinkAway(f"an object cannot be put together here: {error}") from None


def _compress(one: StoredObject) -> Packed:
    """Return the content of an object, always the same bytes for the same; in a file where it is large."""
    with contextlib.ExitStack() as closing:
        file = closing.enter_context(SpooledTemporaryFile(IN_MEMORY))
        written = cast("IO[bytes]", file)
        with gzip.GzipFile(fileobj=written, mode="wb", compresslevel=LEVEL, mtime=0, filename="") as packed:
            for piece in one.content():
                packed.write(piece)
        file.seek(0)
        if not getattr(file, "_rolled", False):
            return file.read()
        closing.pop_all()
        return written
