"""Where large files are kept, by key: a folder or a bucket; copying them for a backup, deleting those that are old."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import sqlalchemy as sa

from bot.context import Resource
from bot.core import metrics
from bot.core.errors import GiveUp
from bot.evidence.collect import fetches
from bot.evidence.collect.remote_blobs import BlobExists, BlobInfo, BlobMissing, RemoteBlobs
from bot.evidence.collect.tables import ci_artifact, ci_fetch, ci_listing, ci_storage_day
from bot.ingest.retention import delete_rows
from bot.jobs.settings import CollectSettings, is_remote

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.evidence.collect.remote_blobs import Blobs

KEY_MOST = 180  # bytes of a key as a file name
PIECE = 1024 * 1024
TEMPORARY = ".tmp-"  # begins the name of a file that is being written
FILES = "??/??/*"
DAY = 86_400_000  # milliseconds
BATCH = 200
PAUSE = 0.02  # seconds between two batches
LOG_PREFIX = "log/"


@dataclass(kw_only=True)
class Copied:
    """What was copied."""

    files: int = 0
    bytes: int = 0
    there: int = 0  # files that were there already


class LocalBlobs:
    """Blobs as files of a folder, readable by their owner only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def put(self, key: str, source: Path | bytes) -> None:
        """Store a blob, replacing one of the same key."""
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
        for blob in await asyncio.to_thread(lambda: list(self._files(prefix))):
            yield blob

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
        """Return the file of a key. Keys are ours, but parts come from GitHub, so no part is used as a path."""
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
                status = path.stat()
                if temporary:
                    _clear(path, status)
                    continue
                yield BlobInfo(key=key, size=status.st_size, modified_at=status.st_mtime_ns // 1_000_000)


def blobs_place(settings: Settings) -> str:
    """Return the folder or bucket URL where blobs are kept."""
    return settings.of(CollectSettings).blobs or str(settings.data_dir / "blobs")


def open_blobs(settings: Settings) -> Blobs:
    """Return the store of blobs that the settings name."""
    where = blobs_place(settings)
    return RemoteBlobs(where) if is_remote(where) else LocalBlobs(Path(where))


def _blobs_of(context: Context) -> Blobs:
    return open_blobs(context.settings)


BLOBS: Resource[Blobs] = Resource("blobs", _blobs_of)


def copy_blobs(source: Path, target: Path) -> Copied:
    """Copy blobs to a folder that only its owner may read; nothing is deleted there. Raises GiveUp.

    A blob that is deleted meanwhile is skipped: its row says that it is gone.
    """
    if target.resolve().is_relative_to(source.resolve()):
        raise GiveUp(f"{target} lies in {source}, which is to be copied: choose another folder")
    copied = Copied()
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path in sorted(source.glob(FILES)):
        if not path.name.startswith(TEMPORARY):
            _copy_file(path, target / path.relative_to(source), copied)
    return copied


async def prune_collected(context: Context) -> dict[str, int]:
    """Delete what is past its retention, then the oldest logs while blobs exceed the limit."""
    limits, now = context.settings.of(CollectSettings), context.clock.now()
    kept = {
        LOG_PREFIX: limits.ci_log_retention_days,
        "results/": limits.ci_result_retention_days,
        "util/": limits.ci_utilization_retention_days,
    }
    deleted = 0
    for prefix, days in kept.items():
        deleted += await _delete_expired(
            context, prefix, before=now - days * DAY, words=f"kept for {days} days"
        )
    unnamed, size, logs = await _survey(context, before=now - DAY)
    over = await _delete_over_limit(context, logs, size - limits.blobs_max_bytes)
    metrics.CI_BLOB_BYTES.set(size)
    return {"blobs": deleted + over, "unnamed blobs": unnamed, "rows of CI": await _delete_rows(context, now)}


def _clear(path: Path, status: os.stat_result) -> None:
    """Delete a file that a crash left half written; no write takes an hour."""
    if status.st_mtime < time.time() - 3600:
        path.unlink(missing_ok=True)


def _copy(source: Path | bytes, target: Path) -> None:
    """Copy a file so that only its owner may read it, and wait until it is on disk."""
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


def _copy_file(path: Path, to: Path, copied: Copied) -> None:
    part = to.with_name(TEMPORARY + secrets.token_hex(8))
    try:
        known = path.stat()
        if to.exists() and _is_same_file(known, to.stat()):
            copied.there += 1
            return
        to.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copy2(path, part)  # its time tells how old a log is
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(to)
    except FileNotFoundError:
        return
    finally:
        part.unlink(missing_ok=True)
    copied.files += 1
    copied.bytes += known.st_size


def _is_same_file(status: os.stat_result, other: os.stat_result) -> bool:
    return (status.st_size, status.st_mtime_ns) == (other.st_size, other.st_mtime_ns)


async def _delete_expired(context: Context, prefix: str, *, before: int, words: str) -> int:
    """Delete the blobs of fetches that ended before a time."""
    deleted = 0
    while True:
        async with context.store.transaction() as tx:
            keys = await fetches.blobs_ended_before(tx, prefix, before, limit=BATCH)
            await fetches.forget_blobs(tx, keys, words)
        if not keys:
            return deleted
        for key in keys:
            await context.resource(BLOBS).delete(key)
        deleted += len(keys)
        await context.clock.sleep(PAUSE)


async def _survey(context: Context, *, before: int) -> tuple[int, int, list[BlobInfo]]:
    """Delete blobs that no row names, except young ones; returns their number, the size of the rest, and the logs."""
    blobs = context.resource(BLOBS)
    stored = [blob async for blob in blobs.list()]
    size = sum(blob.size for blob in stored)
    deleted = 0
    for start in range(0, len(stored), BATCH):
        old = [blob for blob in stored[start : start + BATCH] if blob.modified_at < before]
        async with context.store.read() as tx:
            known = await fetches.named_blobs(tx, [blob.key for blob in old])
        for blob in old:
            if blob.key not in known:
                await blobs.delete(blob.key)
                size -= blob.size
                deleted += 1
    return deleted, size, [blob for blob in stored if blob.key.startswith(LOG_PREFIX)]


async def _delete_over_limit(context: Context, logs: list[BlobInfo], excess: int) -> int:
    """Delete the oldest logs until blobs fit the limit; returns how many."""
    chosen = []
    for log in sorted(logs, key=lambda log: log.modified_at):
        if excess <= 0:
            break
        chosen.append(log.key)
        excess -= log.size
    for start in range(0, len(chosen), BATCH):
        keys = chosen[start : start + BATCH]
        async with context.store.transaction() as tx:
            await fetches.forget_blobs(tx, keys, "deleted to keep BLOBS_MAX_BYTES")
        for key in keys:
            await context.resource(BLOBS).delete(key)
        await context.clock.sleep(PAUSE)
    return len(chosen)


async def _delete_rows(context: Context, now: int) -> int:
    """Delete rows older than the retention of records."""
    before = now - context.settings.record_retention_days * DAY
    deleted = 0
    for table, age in (
        (ci_fetch, ci_fetch.c.asked_at < before),
        (ci_listing, ci_listing.c.at < before),
        (ci_artifact, sa.func.coalesce(ci_artifact.c.expires_at, ci_artifact.c.created_at, 0) < before),
        (ci_storage_day, ci_storage_day.c.day < before // DAY),
    ):
        deleted += await delete_rows(context, table, age)
    return deleted
