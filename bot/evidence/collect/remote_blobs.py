"""What a store of blobs does and how it fails; a store in a bucket of S3, Google Cloud Storage or Azure.

Buckets are reached through obstore (extra `s3`), which is imported on first use.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote, unquote

from bot.core.errors import OotbotError, RetryLater

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from obstore.store import ObjectStore

PIECE = 1024 * 1024
SAID = 200  # characters of an error
PATIENCE = timedelta(seconds=30)  # for one call, with its repetitions
REPEATED = 3


class BlobMissing(OotbotError):
    """The blob is gone: a row names it, its store no longer has it."""


class BlobExists(OotbotError):
    """There already is a blob of this key."""


class BlobsUnavailable(RetryLater):
    """The store of blobs cannot be used now."""


@dataclass(frozen=True, kw_only=True)
class BlobInfo:
    """A blob in a listing."""

    key: str
    size: int
    modified_at: int  # epoch milliseconds


class Blobs(Protocol):
    """A store of blobs. A blob is there completely or not at all."""

    async def put(self, key: str, source: Path | bytes) -> None:
        """Store a blob, replacing one of the same key."""
        ...

    async def create(self, key: str, source: Path | bytes) -> None:
        """Store a blob; raises BlobExists where its key is taken."""
        ...

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return a part of a blob, or all of it; raises BlobMissing."""
        ...

    async def size(self, key: str) -> int:
        """Return a blob's size; raises BlobMissing."""
        ...

    async def delete(self, key: str) -> None:
        """Delete a blob; one that is gone already is fine."""
        ...

    def list(self, prefix: str = "") -> AsyncIterator[BlobInfo]:
        """Yield every blob whose key begins with a prefix, in no order."""
        ...

    async def close(self) -> None:
        """Release its resources."""
        ...


async def copy_to(blobs: Blobs, key: str, path: Path) -> None:
    """Write a blob to a new file, a piece at a time; raises BlobMissing."""
    size = await blobs.size(key)
    await asyncio.to_thread(path.touch, exist_ok=False)
    for start in range(0, size, PIECE):
        await asyncio.to_thread(_append, path, await blobs.get(key, start, PIECE))


class RemoteBlobs:
    """Blobs as objects below a prefix of a bucket."""

    def __init__(self, url: str) -> None:
        from obstore.store import from_url  # noqa: PLC0415 - the extra `s3`

        self.url = url
        with self._calling(url):
            self._store: ObjectStore = from_url(
                url, retry_config={"max_retries": REPEATED, "retry_timeout": PATIENCE}
            )

    async def put(self, key: str, source: Path | bytes) -> None:
        """Store a blob, replacing one of the same key."""
        import obstore  # noqa: PLC0415

        with self._calling(key, missing=False):
            await obstore.put_async(self._store, _name(key), source)

    async def create(self, key: str, source: Path | bytes) -> None:
        """Store a blob; raises BlobExists where its key is taken."""
        import obstore  # noqa: PLC0415

        with self._calling(key, missing=False):
            await obstore.put_async(self._store, _name(key), source, mode="create")

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return a part of a blob, or all of it; raises BlobMissing."""
        import obstore  # noqa: PLC0415

        if length is not None and length <= 0:
            return b""
        try:
            with self._calling(key):
                if length is not None:
                    return bytes(
                        await obstore.get_range_async(self._store, _name(key), start=start, length=length)
                    )
                whole = await obstore.get_async(
                    self._store, _name(key), options={"range": {"offset": start}} if start else None
                )
                return bytes(await whole.bytes_async())
        except BlobsUnavailable:
            if start and start >= await self.size(key):  # a range behind the end is an error to a bucket
                return b""
            raise

    async def size(self, key: str) -> int:
        """Return a blob's size; raises BlobMissing."""
        import obstore  # noqa: PLC0415

        with self._calling(key):
            return (await obstore.head_async(self._store, _name(key)))["size"]

    async def delete(self, key: str) -> None:
        """Delete a blob; one that is gone already is fine."""
        import obstore  # noqa: PLC0415

        with contextlib.suppress(BlobMissing), self._calling(key):
            await obstore.delete_async(self._store, _name(key))

    async def list(self, prefix: str = "") -> AsyncIterator[BlobInfo]:
        """Yield every blob whose key begins with a prefix, in no order."""
        import obstore  # noqa: PLC0415

        folder = prefix.rpartition("/")[0]  # a bucket lists by whole segments
        with self._calling(prefix, missing=False):
            async for some in obstore.list(self._store, prefix=_name(folder) if folder else None):
                for entry in some:
                    key = unquote(entry["path"])
                    if key.startswith(prefix):
                        modified_at = round(entry["last_modified"].timestamp() * 1000)
                        yield BlobInfo(key=key, size=entry["size"], modified_at=modified_at)

    async def check(self) -> None:
        """Write, read and delete a blob; raises BlobsUnavailable with what the store says."""
        key = f"doctor/{secrets.token_hex(8)}"
        await self.put(key, b"written by ootbot doctor")
        try:
            await self.get(key)
        except BlobMissing as error:
            raise BlobsUnavailable(f"{self.url}: what was written cannot be read") from error
        finally:
            await self.delete(key)

    async def close(self) -> None:
        """Do nothing: the connections end with the program."""

    @contextlib.contextmanager
    def _calling(self, key: str, *, missing: bool = True) -> Iterator[None]:
        """Turn obstore's errors into ours; with `missing`, not found means the blob, not its bucket."""
        from obstore.exceptions import (  # noqa: PLC0415
            AlreadyExistsError,
            BaseError,
        )

        try:
            yield
        except AlreadyExistsError:
            raise BlobExists(f"there is a blob {key} already") from None
        except FileNotFoundError as error:
            if missing:
                raise BlobMissing(f"blob {key} is gone") from None
            raise self._unavailable(error) from None
        except (BaseError, OSError) as error:
            raise self._unavailable(error) from None

    def _unavailable(self, error: Exception) -> BlobsUnavailable:
        said = str(error).partition("\n")[0][:SAID]
        return BlobsUnavailable(f"{self.url} cannot be used: {said}")


def _append(path: Path, piece: bytes) -> None:
    with path.open("ab") as file:
        file.write(piece)


def _name(key: str) -> str:
    """Return the object's name below the prefix; no part of a key leads outside it."""
    if not key or any(part in {"", ".", ".."} for part in key.split("/")):
        raise ValueError(f"{key!r} is no key of a blob")
    return quote(key, safe="/")
