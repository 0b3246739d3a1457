"""The driver of object stores: rows become objects; writing one again changes nothing.

obstore makes the calls. Credentials, region and endpoint come from the environment, under the names that the
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import os
import re
import secrets
from array import array
from bisect import bisect_left
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, TypeVar, cast
from urllib.parse import quote, unquote, urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import LocalStore, from_url

from bot.core.errors import OotbotError
from bot.sinks.driver import Difference, Refusal, SinkAway, SinkForbidden, Stopped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

    from obstore.store import ObjectStore

    from bot.db.exports import RowKey, StoredObject
    from bot.sinks.driver import Batch, Outgoing
    from bot.sinks.settings import SinkSettings

PATIENCE = timedelta(seconds=30)  # for one call, with its repetitions
REPEATED = 3
SYNCED_AT_ONCE = 16
FORBIDDEN_ANSWER = re.compile(
    "ExpiredToken|InvalidToken|InvalidAccessKeyId|SignatureDoesNotMatch|AuthorizationFailure"
)
REFUSED_ANSWER = re.compile("status (?:code )?4[0-9][0-9]|4[0-9][0-9] [A-Z]")
RETRIED_ANSWER = re.compile("408|429|SlowDown|Throttl")
NO_BUCKET = re.compile("NoSuchBucket|bucket does not exist|ContainerNotFound", re.IGNORECASE)
ANSWER = re.compile("status code: ([0-9]{3}[A-Za-z ]*)")
CODE, MESSAGE = re.compile("<Code>([^<]*)<"), re.compile("<Message>([^<]*)<")
MAKE_BUCKET = {  # what makes the bucket that is missing
    "s3": "aws s3 mb s3://{}",
    "gs": "gcloud storage buckets create gs://{}",
    "az": "az storage container create --name {}",
}
T = TypeVar("T")
Packed = bytes | IO[bytes]
ROWS_AT_ONCE = 64  # rows in flight: a store may answer each after 50 ms only
IN_MEMORY = 256 * 1024  # bytes of an object, compressed; a larger one is put together in a file
LEVEL = 6
ARCHIVED = ".gz"  # ends the keys of objects that are gzip files; others are encoded so on their way


class ObjectRefused(OotbotError):
    """The store will never take this object."""


class ObjectStorage:
    """The objects below a prefix."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_folder = url.startswith("file://")
        self.folder = Path(unquote(urlsplit(url).path)) if self.is_folder else None
        self._opened: ObjectStore | None = None

    def _store(self) -> ObjectStore:
        """Return the store, opened on first use: a folder may not be there yet."""
        if self._opened is None:
            if self.folder is not None:
                self._opened = LocalStore(self.folder, mkdir=True)
            else:
                self._opened = from_url(
                    self.url, retry_config={"max_retries": REPEATED, "retry_timeout": PATIENCE}
                )
        return self._opened

    async def put(
        self, key: str, content: bytes | IO[bytes], *, attributes: Mapping[str, str], create: bool = False
    ) -> None:
        """Write an object; with `create` one that is there already stays as it is."""
        with self._calling(), contextlib.suppress(AlreadyExistsError):
            await obstore.put_async(
                self._store(),
                key,
                content,
                attributes=None if self.is_folder else dict(attributes),
                mode="create" if create else "overwrite",
            )

    async def get(self, key: str) -> bytes | None:
        """Return an object's bytes as they are stored, None where there is none."""
        with self._calling():
            try:
                response = await obstore.get_async(self._store(), key)
                return bytes(await response.bytes_async())
            except (NotFoundError, FileNotFoundError) as error:
                if NO_BUCKET.search(str(error)):
                    raise
                return None

    async def delete(self, key: str) -> None:
        """Delete an object, if it is there."""
        with self._calling():
            try:
                await obstore.delete_async(self._store(), key)
            except (NotFoundError, FileNotFoundError) as error:
                if NO_BUCKET.search(str(error)):
                    raise

    async def list(self, folder: str) -> AsyncIterator[str]:
        """Yield the keys below a folder, in no order."""
        with self._calling():
            async for some in obstore.list(self._store(), prefix=folder or None):
                for listed in some:
                    yield listed["path"]

    async def sync(self, keys: Sequence[str]) -> None:
        """Wait until objects are stored durably: buckets promise that, files of a folder must be synced."""
        if self.folder is not None and keys:
            with self._calling():
                await asyncio.to_thread(_sync, self.folder, keys)

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        """Turn obstore's errors into ours."""
        try:
            yield
        except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
            raise SinkForbidden(_describe(error)) from None
        except (NotFoundError, FileNotFoundError) as error:
            raise self._not_there(error) from None
        except (InvalidPathError, ValueError) as error:
            raise ObjectRefused(_describe(error)) from None
        except (BaseError, OSError) as error:
            raise self._failed(error) from None

    def _not_there(self, error: Exception) -> Exception:
        parts = urlsplit(self.url)
        if parts.scheme in MAKE_BUCKET:
            make = MAKE_BUCKET[parts.scheme].format(parts.hostname)
            return Stopped(f"there is no {parts.scheme}://{parts.hostname}: make it with `{make}`")
        return SinkAway(_describe(error))

    def _failed(self, error: Exception) -> Exception:
        words = str(error)
        if FORBIDDEN_ANSWER.search(words):
            return SinkForbidden(_describe(error))
        if NO_BUCKET.search(words):
            return self._not_there(error)
        if REFUSED_ANSWER.search(words) and not RETRIED_ANSWER.search(words):
            return ObjectRefused(_describe(error))
        return SinkAway(_describe(error))


class ObjectChecker:
    """Compares one export. A folder of the store is listed once, and kept as eight bytes a key."""

    def __init__(self, storage: ObjectStorage, batch: Batch) -> None:
        self._storage = storage
        self._export = batch.export
        self._make = batch.make
        self._listed: dict[str, array[int]] = {}

    async def missing(self, items: Sequence[Outgoing]) -> set[RowKey]:
        """Return the rows with a missing object."""
        keys = set()
        for item in items:
            if item.row is None:
                continue
            for expected in await self._objects(item):
                if not await self._has(expected.key):
                    keys.add(item.key)
                    break
        return keys

    async def differing(self, items: Sequence[Outgoing]) -> list[Difference]:
        """Compare the content of a few."""
        differences = []
        for item in items:
            for expected in await self._objects(item):
                stored = await self._storage.get(expected.key)
                if stored is None:
                    differences.append(Difference(key=item.key, words=f"{expected.key} is missing"))
                elif not await asyncio.to_thread(_has_same_content, expected, stored):
                    differences.append(Difference(key=item.key, words=f"{expected.key} has another content"))
        return differences

    async def _objects(self, item: Outgoing) -> list[StoredObject]:
        made: list[StoredObject] = await asyncio.to_thread(self._make, self._export, item.row)
        return made

    async def _has(self, key: str) -> bool:
        folder = key.rpartition("/")[0]
        if folder not in self._listed:
            keys = [_key_number(key) async for key in self._storage.list(folder)]
            self._listed[folder] = array("Q", sorted(keys))
        listed, wanted = self._listed[folder], _key_number(key)
        place = bisect_left(listed, wanted)
        return place < len(listed) and listed[place] == wanted


def open_objects(settings: SinkSettings) -> ObjectDriver:
    """Return the driver of a sink."""
    return ObjectDriver(ObjectStorage(settings.options.url))


class ObjectDriver:
    """Writes rows as objects."""

    def __init__(self, storage: ObjectStorage) -> None:
        self._storage = storage

    async def send(self, batch: Batch) -> Sequence[Refusal]:
        """Write a batch; returns the rows with a refused object."""
        written: list[StoredObject] = []
        refused: list[Refusal] = []

        async def send_row(item: Outgoing) -> None:
            packed = await asyncio.to_thread(_pack_row, batch, item)
            try:
                for made, content in packed:
                    await (self._storage.delete(made.key) if content is None else self._put(made, content))
            except ObjectRefused as error:
                refused.append(Refusal(key=item.key, reason=str(error)))
            else:
                written.extend(made for made, content in packed if content is not None)

        await _for_each([item for item in batch.items if item.row is not None], send_row)
        lists = await self._list_in_manifests(written)
        await self._storage.sync([*(made.key for made in written), *lists])
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

    async def _put(self, made: StoredObject, packed: Packed) -> None:
        attributes = {
            "Content-Type": "application/gzip" if made.key.endswith(ARCHIVED) else made.content_type
        }
        if not made.key.endswith(ARCHIVED):
            attributes["Content-Encoding"] = "gzip"
        attributes |= {name: quote(value, safe="/ ") for name, value in made.metadata.items()}
        with contextlib.nullcontext() if isinstance(packed, bytes) else packed:
            await self._storage.put(made.key, packed, attributes=attributes, create=made.immutable)

    async def _list_in_manifests(self, written: Iterable[StoredObject]) -> list[str]:
        """Add a part, named by its content, to the manifests of the written objects; returns their keys."""
        lines: defaultdict[str, set[bytes]] = defaultdict(set)
        for made in written:
            if made.listed:
                lines[made.listed.manifest].add(made.listed.line)
        keys = []
        for folder, some in sorted(lines.items()):
            part = b"".join(line + b"\n" for line in sorted(some))
            key = f"{folder}/{hashlib.sha256(part).hexdigest()[:32]}.jsonl"
            await self._storage.put(key, part, attributes={"Content-Type": "application/jsonl"}, create=True)
            keys.append(key)
        return keys


def _sync(folder: Path, keys: Sequence[str]) -> None:
    """Sync files to the disk, many at once, and then the folders that name them."""
    paths = [folder / key for key in keys]
    folders = {path.parent for path in paths}
    folders |= {parent for inner in folders for parent in inner.parents if parent.is_relative_to(folder)}
    with ThreadPoolExecutor(SYNCED_AT_ONCE) as threads:
        list(threads.map(_sync_path, paths))
        list(threads.map(_sync_path, sorted(folders)))


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _describe(error: Exception) -> str:
    """Return the store's answer, without addresses."""
    line = str(error).partition("\n")[0]
    if not (answer := ANSWER.search(line)):
        return line
    code, message = (match and match[1] for match in (CODE.search(line), MESSAGE.search(line)))
    return ": ".join(filter(None, (answer[1], code, message)))


def _key_number(key: str) -> int:
    return int.from_bytes(hashlib.blake2s(key.encode(), digest_size=8).digest(), "big")


def _has_same_content(expected: StoredObject, stored: bytes) -> bool:
    try:
        plain = gzip.decompress(stored)
    except (OSError, EOFError):
        return False
    return plain == b"".join(expected.content())


async def _for_each(items: Sequence[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Work on several items at once; the first failure ends all."""
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await work(item)

    workers = [asyncio.create_task(worker()) for _ in range(min(ROWS_AT_ONCE, len(items)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


def _pack_row(batch: Batch, item: Outgoing) -> list[tuple[StoredObject, Packed | None]]:
    """Return a row's objects, each with its content compressed; without, where it is to be deleted."""
    objects: list[StoredObject] = batch.make(batch.export, item.row)
    try:
        return [(made, None if item.deleted else _compress(made)) for made in objects]
    except OSError as error:  # a large one is put together on this machine's disk
        raise SinkAway(f"an object cannot be put together here: {error}") from None


def _compress(made: StoredObject) -> Packed:
    """Return the content of an object, always the same bytes for the same; in a file where it is large."""
    with contextlib.ExitStack() as closing:
        file = closing.enter_context(SpooledTemporaryFile(IN_MEMORY))
        written = cast("IO[bytes]", file)
        with gzip.GzipFile(fileobj=written, mode="wb", compresslevel=LEVEL, mtime=0, filename="") as packed:
            for piece in made.content():
                packed.write(piece)
        file.seek(0)
        if not getattr(file, "_rolled", False):
            return file.read()
        closing.pop_all()
        return written
