"""Pages as they are sent: rendered in a thread of their own, cached for seconds, with an ETag, gzip where accepted.

The thread has an event loop of its own, so that no delivery waits for a page.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import structlog
from aiohttp import web

from bot.core.errors import Rejected, StoreUnavailable
from bot.web import access
from bot.web.access import CONTEXT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bot.db.store import Store
    from bot.web.access import Hidden

    Handler = Callable[[web.Request], Awaitable[web.Response]]

    PageHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]

    Make = Callable[[], Awaitable[web.Response]]

    PageKey = tuple[str, Hidden]

T = TypeVar("T")
MOST_RENDERED_AT_ONCE = 4  # pages being rendered: each holds its rows in memory; first come, first served
RENDER_PATIENCE = 10.0  # seconds a page waits for its turn
RENDER_SHUTDOWN = 1.0  # seconds pages get to end when the bot stops

log = structlog.get_logger("bot.web.page_cache")
MOST_PAGES = 256
MOST_BYTES = 64 * 1024 * 1024
LEAST_COMPRESSED = 1_000  # bytes that are not worth compressing
COMPRESSION_LEVEL = 4  # of compression: pages are made for few readers each
NOT_STORED = "private, no-store"
KEY_LOOKUP = 2.0  # seconds the database gets to tell a page's key; rendering has its own limit


@dataclass(frozen=True, kw_only=True)
class CachedPage:
    """A page as it is sent."""

    body: bytes
    gzipped: bytes  # the same; empty where it is small
    etag: str
    content_type: str
    expires_at: float  # epoch milliseconds


class RenderThread:
    """A second event loop with database connections of its own; it starts with the first page."""

    def __init__(self, store: Store, *, patience: float = RENDER_PATIENCE) -> None:
        self._store = store
        self.patience = patience
        self._places = asyncio.Semaphore(MOST_RENDERED_AT_ONCE)
        self._running: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None

    async def run(self, request: web.Request, work: Callable[[], Awaitable[T]], *, first: bool = False) -> T:
        """Run `work` in the thread and return its result; its errors are raised here.

        `first` skips the queue. Raises Rejected 503 when others take too long, ConnectionResetError when the
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
        await asyncio.to_thread(thread.join, RENDER_SHUTDOWN)
        if thread.is_alive():
            log.warning("a page in the making takes too long: it is left behind", seconds=RENDER_SHUTDOWN)
        else:
            ending.result()

    def _start(self) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
        loop = type(asyncio.get_running_loop())()  # uvloop, where this one is
        self._store.read_in(loop)
        thread = threading.Thread(target=_run_loop, args=(loop,), name="pages", daemon=True)
        thread.start()
        return loop, thread

    async def _in_turn(self, request: web.Request, work: Callable[[], Awaitable[T]]) -> T:
        async with waiting_for_turn(self._places, self.patience):
            return await _unless_gone(request, work)

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._store.stop_reading()


@contextlib.asynccontextmanager
async def waiting_for_turn(lock: asyncio.Lock | asyncio.Semaphore, patience: float) -> AsyncIterator[None]:
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


RENDER_THREAD: web.AppKey[RenderThread] = web.AppKey("render_thread", RenderThread)


def in_render_thread(handler: Handler) -> Handler:
    """Run a handler that only reads in the render thread."""

    @functools.wraps(handler)
    async def run(request: web.Request) -> web.Response:
        return await request.app[RENDER_THREAD].run(request, functools.partial(handler, request))

    return run


def set_up_render_thread(app: web.Application) -> None:
    """Add the thread to an application; it stops with it."""

    async def stopping(app: web.Application) -> AsyncIterator[None]:
        yield
        await app[RENDER_THREAD].close()

    app[RENDER_THREAD] = RenderThread(app[CONTEXT].store)
    app.cleanup_ctx.append(stopping)


class PageCache:
    """Recently rendered pages; requests for the same page wait for one rendering."""

    def __init__(self) -> None:
        self._pages: OrderedDict[PageKey, CachedPage] = OrderedDict()
        self._locks: dict[PageKey, asyncio.Lock] = {}
        self._size = 0

    def find(self, key: PageKey, now: float) -> CachedPage | None:
        """Return a page that has not expired."""
        page = self._pages.get(key)
        return page if page is not None and now < page.expires_at else None

    def store(self, key: PageKey, page: CachedPage) -> None:
        """Add a page; drops the oldest ones beyond the limits."""
        self._drop(key)
        self._pages[key] = page
        self._size += len(page.body) + len(page.gzipped)
        while len(self._pages) > MOST_PAGES or self._size > MOST_BYTES:
            self._drop(next(iter(self._pages)))

    def lock(self, key: PageKey) -> asyncio.Lock:
        """Return the lock under which a page is rendered."""
        self._locks = {name: lock for name, lock in self._locks.items() if lock.locked()}
        return self._locks.setdefault(key, asyncio.Lock())

    def _drop(self, key: PageKey) -> None:
        page = self._pages.pop(key, None)
        if page is not None:
            self._size -= len(page.body) + len(page.gzipped)


PAGE_CACHE: web.AppKey[PageCache] = web.AppKey("page_cache", PageCache)


async def answer_cached(request: web.Request, make: Make) -> web.StreamResponse:
    """Answer with a page, from the cache or rendered now."""
    context, thread = request.app[CONTEXT], request.app[RENDER_THREAD]
    seconds = context.settings.page_cache
    if access.reads_private(request):
        made = await thread.run(request, make)
        made.headers["Cache-Control"] = NOT_STORED
        return made
    key = await _page_key(request) if seconds else None
    if key is None:
        return _send_page(request, await thread.run(request, functools.partial(_make_sealed, make)))
    cache, now = request.app[PAGE_CACHE], context.clock.now()
    page: CachedPage | web.Response | None = cache.find(key, now)
    if page is None:
        async with waiting_for_turn(cache.lock(key), thread.patience):
            page = cache.find(key, now)
            if page is None:
                expires_at = now + seconds * 1000
                sealed = functools.partial(_make_sealed, make, expires_at=expires_at)
                page = await thread.run(request, sealed)
                if isinstance(page, CachedPage):  # its key: what was hidden while it was rendered
                    cache.store((request.path_qs, request[access.HIDDEN]), page)
    return _send_page(request, page)


def with_etag(handler: Callable[[web.Request], Awaitable[web.Response]]) -> PageHandler:
    """Run a reading handler in the render thread; a client that has the answer already, by ETag, gets 304."""

    @functools.wraps(handler)
    async def answer(request: web.Request) -> web.StreamResponse:
        make = functools.partial(_make_sealed, functools.partial(handler, request))
        control = NOT_STORED if access.reads_private(request) else "private, no-cache"
        return _send_page(request, await request.app[RENDER_THREAD].run(request, make), control=control)

    return answer


def seal_page(made: web.Response, *, expires_at: float = 0) -> CachedPage:
    """Return an answer ready to be sent many times."""
    body = made.body if isinstance(made.body, bytes) else b""
    return CachedPage(
        body=body,
        gzipped=gzip.compress(body, COMPRESSION_LEVEL, mtime=0) if len(body) > LEAST_COMPRESSED else b"",
        etag=hashlib.sha256(body).hexdigest()[:20],
        content_type=made.headers["Content-Type"],
        expires_at=expires_at,
    )


def send_page(request: web.Request, page: CachedPage, *, control: str) -> web.Response:
    """Answer with a file that never changes while the bot runs, such as the stylesheet."""
    return _send_page(request, page, control=control)


async def _unless_gone(request: web.Request, work: Callable[[], Awaitable[T]]) -> T:
    """Run `work` while the client still waits, and return its result."""
    if request.transport is None:
        raise ConnectionResetError("the client has gone")
    return await work()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _make_sealed(make: Make, *, expires_at: float = 0) -> CachedPage | web.Response:
    """Return a page ready to be sent; refusals are returned as they are."""
    made = await make()
    return seal_page(made, expires_at=expires_at) if made.status == 200 else made


async def _page_key(request: web.Request) -> PageKey | None:
    """Return the key of a page; None when the database cannot tell what it may show."""
    try:
        async with request.app[CONTEXT].store.read(answer_within=KEY_LOOKUP) as tx:
            return request.path_qs, await access.hidden_from(request, tx)
    except StoreUnavailable:
        return None


def _refused_page(made: web.Response) -> web.Response:
    made.headers.setdefault("Cache-Control", "no-cache")
    return made


def _send_page(request: web.Request, page: CachedPage | web.Response, *, control: str = "") -> web.Response:
    if isinstance(page, web.Response):
        return _refused_page(page)
    seconds = request.app[CONTEXT].settings.page_cache
    headers = {
        "Cache-Control": control or (f"private, max-age={seconds}" if seconds else "private, no-cache"),
        "ETag": f'W/"{page.etag}"',
        "Vary": "Accept-Encoding, Authorization, Cookie",
    }
    headers["Content-Type"] = page.content_type  # chooses the policy: a 304's takes the place of the kept one
    if any(tag.value == page.etag for tag in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    if page.gzipped and "gzip" in request.headers.get("Accept-Encoding", ""):
        return web.Response(body=page.gzipped, headers=headers | {"Content-Encoding": "gzip"})
    return web.Response(body=page.body, headers=headers)
