"""Pages as they are sent: cached for some seconds, with an ETag, gzip where the client accepts it."""

from __future__ import annotations

import asyncio
import functools
import gzip
import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from bot.core.errors import StoreUnavailable
from bot.web import access
from bot.web.app_keys import CONTEXT
from bot.web.render_thread import RENDER_THREAD, turn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bot.web.access import Hidden

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
    Make = Callable[[], Awaitable[web.Response]]
    # the address, and what was hidden: a page never outlives a change of what may be shown
    Key = tuple[str, Hidden]

MOST_PAGES = 256
MOST_BYTES = 64 * 1024 * 1024
SMALL = 1_000  # bytes that are not worth compressing
LEVEL = 4  # of compression: pages are made for few readers each
PRIVATE = "private, no-store"
LOOKUP = 2.0  # seconds the database gets to tell a page's key; rendering has its own limit


@dataclass(frozen=True, kw_only=True)
class CachedPage:
    """A page as it is sent."""

    body: bytes
    gzipped: bytes  # the same; empty where it is small
    etag: str
    content_type: str
    expires_at: float  # epoch milliseconds


class PageCache:
    """Pages rendered lately; requests for the same page wait for one rendering."""

    def __init__(self) -> None:
        self._pages: OrderedDict[Key, CachedPage] = OrderedDict()
        self._locks: dict[Key, asyncio.Lock] = {}
        self._size = 0

    def find(self, key: Key, now: float) -> CachedPage | None:
        """Return a page that has not expired."""
        found = self._pages.get(key)
        return found if found is not None and now < found.expires_at else None

    def store(self, key: Key, page: CachedPage) -> None:
        """Add a page; drops the oldest ones beyond the limits."""
        self._drop(key)
        self._pages[key] = page
        self._size += len(page.body) + len(page.gzipped)
        while len(self._pages) > MOST_PAGES or self._size > MOST_BYTES:
            self._drop(next(iter(self._pages)))

    def lock(self, key: Key) -> asyncio.Lock:
        """Return the lock under which a page is rendered."""
        self._locks = {name: lock for name, lock in self._locks.items() if lock.locked()}
        return self._locks.setdefault(key, asyncio.Lock())

    def _drop(self, key: Key) -> None:
        page = self._pages.pop(key, None)
        if page is not None:
            self._size -= len(page.body) + len(page.gzipped)


PAGE_CACHE: web.AppKey[PageCache] = web.AppKey("page_cache", PageCache)


async def answer(request: web.Request, make: Make) -> web.StreamResponse:
    """Answer with a page, from the cache or rendered now."""
    context, thread = request.app[CONTEXT], request.app[RENDER_THREAD]
    seconds = context.settings.page_cache
    if access.reads_private(request):
        made = await thread.run(request, make)
        made.headers["Cache-Control"] = PRIVATE
        return made
    key = await _key(request) if seconds else None
    if key is None:
        return _send(request, await thread.run(request, functools.partial(_sealed, make)))
    cache, now = request.app[PAGE_CACHE], context.clock.now()
    found: CachedPage | web.Response | None = cache.find(key, now)
    if found is None:
        async with turn(cache.lock(key), thread.patience):
            found = cache.find(key, now)
            if found is None:
                expires_at = now + seconds * 1000
                sealed = functools.partial(_sealed, make, expires_at=expires_at)
                found = await thread.run(request, sealed)
                if isinstance(found, CachedPage):  # its key: what was hidden while it was rendered
                    cache.store((request.path_qs, request[access.HIDDEN]), found)
    return _send(request, found)


def tagged(handler: Callable[[web.Request], Awaitable[web.Response]]) -> Handler:
    """Run a handler that only reads in the render thread; who has its answer already, by ETag, gets 304."""

    @functools.wraps(handler)
    async def answer(request: web.Request) -> web.StreamResponse:
        make = functools.partial(_sealed, functools.partial(handler, request))
        control = PRIVATE if access.reads_private(request) else "private, no-cache"
        return _send(request, await request.app[RENDER_THREAD].run(request, make), control=control)

    return answer


async def _sealed(make: Make, *, expires_at: float = 0) -> CachedPage | web.Response:
    """Return a page ready to be sent; refusals are returned as they are."""
    made = await make()
    return seal(made, expires_at=expires_at) if made.status == 200 else made


async def _key(request: web.Request) -> Key | None:
    """Return the key of a page; None when the database cannot tell what it may show."""
    try:
        async with request.app[CONTEXT].store.read(answer_within=LOOKUP) as tx:
            return request.path_qs, await access.hidden_from(request, tx)
    except StoreUnavailable:
        return None


def _refused(made: web.Response) -> web.Response:
    made.headers.setdefault("Cache-Control", "no-cache")
    return made


def seal(made: web.Response, *, expires_at: float = 0) -> CachedPage:
    """Return an answer ready to be sent many times."""
    body = made.body if isinstance(made.body, bytes) else b""
    return CachedPage(
        body=body,
        gzipped=gzip.compress(body, LEVEL, mtime=0) if len(body) > SMALL else b"",
        etag=hashlib.sha256(body).hexdigest()[:20],
        content_type=made.headers["Content-Type"],
        expires_at=expires_at,
    )


def _send(request: web.Request, page: CachedPage | web.Response, *, control: str = "") -> web.Response:
    if isinstance(page, web.Response):
        return _refused(page)
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


def send(request: web.Request, page: CachedPage, *, control: str) -> web.Response:
    """Answer with a file that never changes while the bot runs, such as the stylesheet."""
    return _send(request, page, control=control)
