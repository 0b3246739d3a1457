"""What a store of blobs does, wherever it keeps them, and how it fails."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bot.core.errors import OotbotError, RetryLater

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


PIECE = 1024 * 1024


class BlobMissing(OotbotError):
    """The blob is gone: a row names it, its store no longer has it."""


class BlobExists(OotbotError):
    """There is a blob of this key already."""


class BlobsUnavailable(RetryLater):
    """The store of blobs cannot be used now."""


@dataclass(frozen=True, kw_only=True)
class BlobInfo:
    """A blob in a listing."""

    key: str
    size: int
    modified_at: int  # epoch milliseconds


class Blobs(Protocol):
    """A store of blobs. A blob is there as a whole or not at all."""

    async def put(self, key: str, source: Path | bytes) -> None:
        """Store a blob, in place of the one of this key."""
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
        """Release what it holds."""
        ...


async def copy_to(blobs: Blobs, key: str, path: Path) -> None:
    """Write a blob to a new file, a piece at a time; raises BlobMissing."""
    size = await blobs.size(key)
    await asyncio.to_thread(path.touch, exist_ok=False)
    for start in range(0, size, PIECE):
        await asyncio.to_thread(_append, path, await blobs.get(key, start, PIECE))


def _append(path: Path, piece: bytes) -> None:
    with path.open("ab") as file:
        file.write(piece)
