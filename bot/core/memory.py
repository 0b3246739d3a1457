"""Options of the C library that keep the process's memory small.

Only the GNU C library has them; elsewhere nothing is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LARGE = 256 * 1024  # bytes
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8  # of malloc.h
ARENAS = 2  # one thread runs at a time: more would only increase fragmentation
TRIM_EVERY = 60.0  # seconds


def keep_together() -> None:
    """Have large blocks returned to the system once free, and limit fragmentation.

    Otherwise twenty bodies of 25 MB leave the process 300 MB larger.
    """
    if adjust := _malloc_function("mallopt"):
        adjust(M_MMAP_THRESHOLD, LARGE)
        adjust(M_ARENA_MAX, ARENAS)


def freeze_loaded_objects() -> None:
    """Exclude everything loaded so far from garbage collection: it stays, and scanning it takes 60 ms."""
    gc.collect()
    gc.freeze()
    gc.enable()


@contextlib.asynccontextmanager
async def trimming() -> AsyncIterator[None]:
    """Return free pages to the system every minute: by itself only the end of the heap is."""
    going = asyncio.create_task(_trim_for_ever())
    try:
        yield
    finally:
        going.cancel()


async def _trim_for_ever() -> None:
    while trim := _malloc_function("malloc_trim"):
        await asyncio.sleep(TRIM_EVERY)
        await asyncio.to_thread(trim, 0)


def _malloc_function(name: str) -> ctypes._NamedFuncPointer | None:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
