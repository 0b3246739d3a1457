"""Where are pages made? In a loop and a thread of their own, so that no delivery waits until a page is done."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from typing import TYPE_CHECKING, TypeVar

import structlog
from aiohttp import web

from bot.errors import Rejected
from bot.web.keys import CONTEXT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bot.store import Store

    Handler = Callable[[web.Request], Awaitable[web.Response]]

T = TypeVar("T")
AT_ONCE = 4  # pages in the making: each holds its rows, and who came first is served first
PATIENCE = 10.0  # seconds a page waits until it is begun
ENDING = 1.0  # seconds pages in the making get to give up

log = structlog.get_logger("bot.web.aside")


class Aside:
    """A second event loop, which reads through connections of its own; it begins with the first page."""

    def __init__(self, store: Store, *, patience: float = PATIENCE) -> None:
        self._store = store
        self.patience = patience
        self._places = asyncio.Semaphore(AT_ONCE)
        self._running: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None

    async def make(self, request: web.Request, work: Callable[[], Awaitable[T]], *, first: bool = False) -> T:
        """Return what `work` returns, done beside everything else; its errors are the caller's.

        `first`: before all that wait. Raises Rejected 503 when others take too long, ConnectionResetError when who
        asked has gone meanwhile.
        """
        loop, _ = self._running = self._running or self._start()
        made = _wanted(request, work) if first else self._in_turn(request, work)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(made, loop))

    async def close(self) -> None:
        """Give up what is in the making, and end; one that hangs ends later, or with the process."""
        if self._running is None:
            return
        (loop, thread), self._running = self._running, None
        ending = asyncio.run_coroutine_threadsafe(self._end(), loop)
        ending.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
        await asyncio.to_thread(thread.join, ENDING)
        if thread.is_alive():
            log.warning("a page in the making takes too long: it is left behind", seconds=ENDING)
        else:
            ending.result()

    def _start(self) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
        loop = type(asyncio.get_running_loop())()  # as fast a one as the one that asks
        self._store.read_in(loop)
        thread = threading.Thread(target=_run, args=(loop,), name="pages", daemon=True)
        thread.start()
        return loop, thread

    async def _in_turn(self, request: web.Request, work: Callable[[], Awaitable[T]]) -> T:
        async with turn(self._places, self.patience):
            return await _wanted(request, work)

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._store.stop_reading()


@contextlib.asynccontextmanager
async def turn(places: asyncio.Lock | asyncio.Semaphore, patience: float) -> AsyncIterator[None]:
    """Hold one of some places; raises Rejected 503 when others have them for more than `patience` seconds."""
    try:
        async with asyncio.timeout(patience):
            await places.acquire()
    except TimeoutError:
        detail = "too many pages are being made at once: come back in a moment"
        raise Rejected(503, "busy", detail, headers={"Retry-After": "5"}) from None
    try:
        yield
    finally:
        places.release()


async def _wanted(request: web.Request, work: Callable[[], Awaitable[T]]) -> T:
    """Return what `work` returns, if anybody still waits for it."""
    if request.transport is None:
        raise ConnectionResetError("nobody waits for this any more")
    return await work()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


ASIDE: web.AppKey[Aside] = web.AppKey("aside", Aside)


def aside(handler: Handler) -> Handler:
    """Have a handler that only reads run where pages are made."""

    @functools.wraps(handler)
    async def made(request: web.Request) -> web.Response:
        return await request.app[ASIDE].make(request, functools.partial(handler, request))

    return made


def setup(app: web.Application) -> None:
    """Give an application its place for pages, which ends with it."""

    async def ended(app: web.Application) -> AsyncIterator[None]:
        yield
        await app[ASIDE].close()

    app[ASIDE] = Aside(app[CONTEXT].store)
    app.cleanup_ctx.append(ended)
