"""What memory does the process hold on to? As little as the machine's libraries can be talked into.

Only the GNU C library has these options; elsewhere nothing is asked for.
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
ARENAS = 2  # one thread runs at a time, so that more would only be more to scatter
TRIM_EVERY = 60.0  # seconds


def keep_together() -> None:
    """Have large blocks given back once they are free, and small ones kept together: what is scattered stays held.

    Twenty bodies of 25 MB otherwise leave the process 300 MB larger.
    """
    if adjust := _of_malloc("mallopt"):
        adjust(M_MMAP_THRESHOLD, LARGE)
        adjust(M_ARENA_MAX, ARENAS)


def settle_in() -> None:
    """Leave what is loaded out of every later search for garbage: it stays, and going through it takes 60 ms."""
    gc.collect()
    gc.freeze()
    gc.enable()


@contextlib.asynccontextmanager
async def trimming() -> AsyncIterator[None]:
    """Give pages that are free again back to the system every minute: only the end of the heap goes by itself."""
    going = asyncio.create_task(_trim_for_ever())
    try:
        yield
    finally:
        going.cancel()


async def _trim_for_ever() -> None:
    while trim := _of_malloc("malloc_trim"):
        await asyncio.sleep(TRIM_EVERY)
        await asyncio.to_thread(trim, 0)


def _of_malloc(name: str) -> ctypes._NamedFuncPointer | None:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
