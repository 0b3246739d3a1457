"""Where are pages made? In a loop and a thread of their own, so that no delivery waits until a page is done."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import TYPE_CHECKING, TypeVar

from aiohttp import web

from bot.web.keys import CONTEXT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bot.store import Store

    Handler = Callable[[web.Request], Awaitable[web.Response]]

T = TypeVar("T")
AT_ONCE = 4  # pages in the making: each holds its rows, and who came first is served first


class Aside:
    """A second event loop, which reads through connections of its own; it begins with the first page."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._places = asyncio.Semaphore(AT_ONCE)
        self._running: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None

    async def make(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return what `work` returns, done beside everything else; its errors are the caller's."""
        loop, _ = self._running = self._running or self._start()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._in_turn(work), loop))

    async def close(self) -> None:
        """Give up what is in the making, and end."""
        if self._running is None:
            return
        loop, thread = self._running
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._end(), loop))
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)
        loop.close()

    def _start(self) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
        loop = type(asyncio.get_running_loop())()  # as fast a one as the one that asks
        self._store.read_in(loop)
        thread = threading.Thread(target=loop.run_forever, name="pages", daemon=True)
        thread.start()
        return loop, thread

    async def _in_turn(self, work: Callable[[], Awaitable[T]]) -> T:
        async with self._places:
            return await work()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._store.stop_reading()


ASIDE: web.AppKey[Aside] = web.AppKey("aside", Aside)


def aside(handler: Handler) -> Handler:
    """Have a handler that only reads run where pages are made."""

    @functools.wraps(handler)
    async def made(request: web.Request) -> web.Response:
        return await request.app[ASIDE].make(functools.partial(handler, request))

    return made


def setup(app: web.Application) -> None:
    """Give an application its place for pages, which ends with it."""

    async def ended(app: web.Application) -> AsyncIterator[None]:
        yield
        await app[ASIDE].close()

    app[ASIDE] = Aside(app[CONTEXT].store)
    app.cleanup_ctx.append(ended)
