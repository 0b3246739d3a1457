"""Where large files are kept, by key: a folder, or a bucket.

A row names its blob. A blob that no row names is left from a crash and deleted after a day.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from bot.ci.collect.blob_store import BlobExists, BlobInfo, BlobMissing
from bot.ci.collect.remote_blobs import RemoteBlobs
from bot.ci.collect.settings import CollectSettings, is_remote
from bot.core.resources import Resource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from bot.ci.collect.blob_store import Blobs
    from bot.context import Context
    from bot.core.settings import Settings

KEY_MOST = 180  # bytes of a key as a file name
PIECE = 1024 * 1024
TEMPORARY = ".tmp-"  # begins the name of a file that is being written


class LocalBlobs:
    """Blobs as files of a folder, readable by their owner only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def put(self, key: str, source: Path | bytes) -> None:
        """Store a blob, in place of the one of this key."""
        await asyncio.to_thread(self._write, key, source, replace=True)

    async def create(self, key: str, source: Path | bytes) -> None:
        """Store a blob; raises BlobExists where its key is taken."""
        await asyncio.to_thread(self._write, key, source, replace=False)

    async def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return a part of a blob, or all of it; raises BlobMissing."""
        return await asyncio.to_thread(self._read, key, start, length)

    async def size(self, key: str) -> int:
        """Return a blob's size; raises BlobMissing."""
        try:
            return (await asyncio.to_thread(self._path(key).stat)).st_size
        except FileNotFoundError:
            raise BlobMissing(f"blob {key} is gone") from None

    async def delete(self, key: str) -> None:
        """Delete a blob; one that is gone already is fine."""
        await asyncio.to_thread(self._path(key).unlink, missing_ok=True)

    async def list(self, prefix: str = "") -> AsyncIterator[BlobInfo]:
        """Yield every blob whose key begins with a prefix, in no order."""
        for one in await asyncio.to_thread(lambda: list(self._files(prefix))):
            yield one

    async def close(self) -> None:
        """Do nothing: no file stays open."""

    def _write(self, key: str, source: Path | bytes, *, replace: bool) -> None:
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        written = path.with_name(TEMPORARY + secrets.token_hex(8))
        try:
            _copy(source, written)
            if replace:
                written.replace(path)
            else:
                os.link(written, path)
        except FileExistsError:
            raise BlobExists(f"there is a blob {key} already") from None
        finally:
            written.unlink(missing_ok=True)
        _sync_folder(path.parent)

    def _read(self, key: str, start: int, length: int | None) -> bytes:
        try:
            with self._path(key).open("rb") as file:
                file.seek(start)
                return file.read(-1 if length is None else length)
        except FileNotFoundError:
            raise BlobMissing(f"blob {key} is gone") from None

    def _path(self, key: str) -> Path:
        """Return the file of a key. Keys are ours, but their parts may come from GitHub: none is ever a path."""
        name = quote(key, safe="")
        if not 0 < len(name) <= KEY_MOST or name.startswith("."):
            raise ValueError(f"{key!r} is no key of a blob")
        digest = hashlib.sha256(key.encode()).hexdigest()
        return self.folder / digest[:2] / digest[2:4] / name

    def _files(self, prefix: str) -> Iterator[BlobInfo]:
        for path in self.folder.glob("??/??/*"):
            key = unquote(path.name)
            temporary = path.name.startswith(TEMPORARY)
            if not temporary and not key.startswith(prefix):
                continue
            with contextlib.suppress(FileNotFoundError):
                found = path.stat()
                if temporary:
                    _clear(path, found)
                    continue
                yield BlobInfo(key=key, size=found.st_size, modified_at=found.st_mtime_ns // 1_000_000)


def _clear(path: Path, found: os.stat_result) -> None:
    """Delete a file that a crash left half written: nothing writes to one for an hour."""
    if found.st_mtime < time.time() - 3600:
        path.unlink(missing_ok=True)


def _copy(source: Path | bytes, target: Path) -> None:
    """Write a file that only its owner may read, and wait until it is on the disk."""
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - of a descriptor
        if isinstance(source, bytes):
            file.write(source)
        else:
            with source.open("rb") as content:
                while piece := content.read(PIECE):
                    file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def blobs_place(settings: Settings) -> str:
    """Return the folder in which blobs are kept, or the URL of a bucket."""
    return settings.of(CollectSettings).blobs or str(settings.data_dir / "blobs")


def open_blobs(settings: Settings) -> Blobs:
    """Return the store of blobs that the settings name."""
    where = blobs_place(settings)
    return RemoteBlobs(where) if is_remote(where) else LocalBlobs(Path(where))


def _blobs_of(context: Context) -> Blobs:
    return open_blobs(context.settings)


BLOBS: Resource[Blobs] = Resource("blobs", _blobs_of)
