"""An object store through obstore: writing, reading, listing, and what its errors mean for a sink.

Credentials, region and endpoint are those of the environment, under the names that the providers' own tools read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import unquote, urlsplit

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
from bot.sinks.driver import SinkAway, SinkForbidden, Stopped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from obstore.store import ObjectStore

PATIENCE = timedelta(seconds=30)  # for one call, with its repetitions
REPEATED = 3
SYNCED_AT_ONCE = 16
FORBIDDEN = re.compile(
    "ExpiredToken|InvalidToken|InvalidAccessKeyId|SignatureDoesNotMatch|AuthorizationFailure"
)
REFUSED = re.compile("status (?:code )?4[0-9][0-9]|4[0-9][0-9] [A-Z]")
RETRIED = re.compile("408|429|SlowDown|Throttl")
NO_BUCKET = re.compile("NoSuchBucket|bucket does not exist|ContainerNotFound", re.IGNORECASE)
ANSWER = re.compile("status code: ([0-9]{3}[A-Za-z ]*)")
CODE, MESSAGE = re.compile("<Code>([^<]*)<"), re.compile("<Message>([^<]*)<")
MAKE = {  # what makes the bucket that is missing
    "s3": "aws s3 mb s3://{}",
    "gs": "gcloud storage buckets create gs://{}",
    "az": "az storage container create --name {}",
}


class ObjectRefused(OotbotError):
    """The store does not take this object, whenever it is tried."""


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
                found = await obstore.get_async(self._store(), key)
                return bytes(await found.bytes_async())
            except (NotFoundError, FileNotFoundError) as error:
                if NO_BUCKET.search(str(error)):
                    raise
                return None

    async def delete(self, key: str) -> None:
        """Delete an object; one that is gone already is fine."""
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
                for one in some:
                    yield one["path"]

    async def sync(self, keys: Sequence[str]) -> None:
        """Wait until objects are stored durably: a bucket has answered so, files of a folder have to be synced."""
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
        if parts.scheme in MAKE:
            make = MAKE[parts.scheme].format(parts.hostname)
            return Stopped(f"there is no {parts.scheme}://{parts.hostname}: make it with `{make}`")
        return SinkAway(_describe(error))

    def _failed(self, error: Exception) -> Exception:
        words = str(error)
        if FORBIDDEN.search(words):
            return SinkForbidden(_describe(error))
        if NO_BUCKET.search(words):
            return self._not_there(error)
        if REFUSED.search(words) and not RETRIED.search(words):
            return ObjectRefused(_describe(error))
        return SinkAway(_describe(error))


def _sync(folder: Path, keys: Sequence[str]) -> None:
    """Wait until files are on the disk, and then the folders that name them; a disk takes many at once."""
    paths = [folder / key for key in keys]
    folders = {path.parent for path in paths}
    folders |= {parent for one in folders for parent in one.parents if parent.is_relative_to(folder)}
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
    """Return what the store answered, without addresses."""
    line = str(error).partition("\n")[0]
    if not (answer := ANSWER.search(line)):
        return line
    code, message = (found and found[1] for found in (CODE.search(line), MESSAGE.search(line)))
    return ": ".join(filter(None, (answer[1], code, message)))
