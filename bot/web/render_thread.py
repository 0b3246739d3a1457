"""The thread that renders pages, with an event loop of its own, so that no delivery waits for a page."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from typing import TYPE_CHECKING, TypeVar

import structlog
from aiohttp import web

from bot.core.errors import Rejected
from bot.web.app_keys import CONTEXT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bot.db.store import Store

    Handler = Callable[[web.Request], Awaitable[web.Response]]

T = TypeVar("T")
MOST_AT_ONCE = 4  # pages being rendered: each holds its rows in memory; first come, first served
PATIENCE = 10.0  # seconds a page waits for its turn
SHUTDOWN = 1.0  # seconds pages get to end when the bot stops

log = structlog.get_logger("bot.web.render_thread")


class RenderThread:
    """A second event loop with database connections of its own; it starts with the first page."""

    def __init__(self, store: Store, *, patience: float = PATIENCE) -> None:
        self._store = store
        self.patience = patience
        self._places = asyncio.Semaphore(MOST_AT_ONCE)
        self._running: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None

    async def run(self, request: web.Request, work: Callable[[], Awaitable[T]], *, first: bool = False) -> T:
        """Return what `work` returns, run in the thread; its errors are raised here.

        `first`: ahead of all that wait. Raises Rejected 503 when others take too long, ConnectionResetError when the
        client has gone meanwhile.
        """
        loop, _ = self._running = self._running or self._start()
        made = _unless_gone(request, work) if first else self._in_turn(request, work)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(made, loop))

    async def close(self) -> None:
        """Cancel what is running and stop the thread; work that hangs ends later, or with the process."""
        if self._running is None:
            return
        (loop, thread), self._running = self._running, None
        ending = asyncio.run_coroutine_threadsafe(self._end(), loop)
        ending.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
        await asyncio.to_thread(thread.join, SHUTDOWN)
        if thread.is_alive():
            log.warning("a page in the making takes too long: it is left behind", seconds=SHUTDOWN)
        else:
            ending.result()

    def _start(self) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
        loop = type(asyncio.get_running_loop())()  # uvloop, where this one is
        self._store.read_in(loop)
        thread = threading.Thread(target=_run_loop, args=(loop,), name="pages", daemon=True)
        thread.start()
        return loop, thread

    async def _in_turn(self, request: web.Request, work: Callable[[], Awaitable[T]]) -> T:
        async with turn(self._places, self.patience):
            return await _unless_gone(request, work)

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._store.stop_reading()


@contextlib.asynccontextmanager
async def turn(lock: asyncio.Lock | asyncio.Semaphore, patience: float) -> AsyncIterator[None]:
    """Hold a lock or semaphore; raises Rejected 503 when it takes more than `patience` seconds to get."""
    try:
        async with asyncio.timeout(patience):
            await lock.acquire()
    except TimeoutError:
        detail = "too many pages are being made at once: come back in a moment"
        raise Rejected(503, "busy", detail, headers={"Retry-After": "5"}) from None
    try:
        yield
    finally:
        lock.release()


async def _unless_gone(request: web.Request, work: Callable[[], Awaitable[T]]) -> T:
    """Return what `work` returns, if the client still waits for it."""
    if request.transport is None:
        raise ConnectionResetError("the client has gone")
    return await work()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


RENDER_THREAD: web.AppKey[RenderThread] = web.AppKey("render_thread", RenderThread)


def in_render_thread(handler: Handler) -> Handler:
    """Run a handler that only reads in the render thread."""

    @functools.wraps(handler)
    async def run(request: web.Request) -> web.Response:
        return await request.app[RENDER_THREAD].run(request, functools.partial(handler, request))

    return run


def setup(app: web.Application) -> None:
    """Add the thread to an application; it stops with it."""

    async def stopping(app: web.Application) -> AsyncIterator[None]:
        yield
        await app[RENDER_THREAD].close()

    app[RENDER_THREAD] = RenderThread(app[CONTEXT].store)
    app.cleanup_ctx.append(stopping)
