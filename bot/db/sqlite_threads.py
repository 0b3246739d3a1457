"""SQLite for an event loop that answers requests: what may wait for the disk or a lock runs in other threads.

That is writes, commits and long reads. Handing a statement over takes longer than most of our reads do, so the event
loop begins each itself, gives it up within a millisecond, and only then hands it over. After a read for which the disk
was slow, all are handed over for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

MOST_STEPS = 20_000  # of SQLite's virtual machine for a read in the event loop: under a millisecond
SLOW = 0.005  # seconds: a read that takes so long may have waited for the disk
PAUSE = 20  # times as long the event loop reads nothing after such a one
READERS = 4  # threads for reads
USAGE = getattr(
    resource, "RUSAGE_THREAD", resource.RUSAGE_SELF
)  # of the thread alone, where the system counts it
NOT_HERE = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT})


class HandOver(Exception):
    """A statement has to be run in another thread."""


class Threads:
    """The threads that statements are handed to, and whether the event loop may read by itself."""

    def __init__(self) -> None:
        self._writing = ThreadPoolExecutor(1, "sqlite-write")  # the database has one writer at a time
        self._reading = ThreadPoolExecutor(READERS, "sqlite-read")
        self._paused_until = 0.0  # of the monotonic clock, in seconds
        self._blocks = 0  # read from the disk by the event loop's thread
        self.closed = False

    async def run(self, work: Callable[..., T], *arguments: Any, writes: bool) -> T:
        """Return what `work` returns in another thread; a caller that is cancelled waits for its end all the same."""
        executor = self._writing if writes else self._reading
        running = asyncio.get_running_loop().run_in_executor(executor, work, *arguments)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            while not running.done():  # the connection is in use until then
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([running])
            if not running.cancelled():
                running.exception()  # nothing else asks for it
            raise

    def run_here(self, driver: DriverConnection, work: Callable[..., T], *arguments: Any, waits: bool) -> T:
        """Return what `work` returns in this thread; raises HandOver where that takes long or has to wait."""
        began = time.monotonic()
        if began < self._paused_until:
            raise HandOver
        if not waits:
            driver.wait_for_others(False)
        driver.set_progress_handler(_interrupt, MOST_STEPS)
        try:
            return work(*arguments)
        except sa.exc.OperationalError as error:
            if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in NOT_HERE:
                raise HandOver from error
            raise
        finally:
            driver.set_progress_handler(None, 0)
            if (took := time.monotonic() - began) > SLOW:
                self._note_slow(began, took)

    def _note_slow(self, began: float, took: float) -> None:
        blocks = resource.getrusage(USAGE).ru_inblock
        if blocks > self._blocks:  # otherwise others had the processor
            self._paused_until = began + took * PAUSE
        self._blocks = blocks

    def close(self) -> None:
        """End the threads, once they have nothing to do."""
        self.closed = True
        self._writing.shutdown(wait=False)
        self._reading.shutdown(wait=False)


def _interrupt() -> int:
    """Return what has SQLite give a statement up."""
    return 1


class DriverConnection(sqlite3.Connection):
    """The driver's connection, which waits for a lock of another process or fails at once."""

    _waits = True  # as long as it was opened to
    _patience = 0  # milliseconds; read when it is changed first

    def wait_for_others(self, wait: bool) -> None:
        """Have statements wait for a lock of another process, or fail at once."""
        if wait == self._waits:
            return
        if not wait and not self._patience:
            (self._patience,) = self.execute("PRAGMA busy_timeout").fetchone()
        self.execute(f"PRAGMA busy_timeout = {self._patience if wait else 0}")
        self._waits = wait
