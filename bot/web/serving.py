"""How is a page sent? Kept for some seconds, with an ETag, compressed for whoever takes it so."""

from __future__ import annotations

import asyncio
import functools
import gzip
import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from bot.errors import StoreUnavailable
from bot.web import access
from bot.web.aside import ASIDE, turn
from bot.web.keys import CONTEXT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bot.web.access import Hidden

    Make = Callable[[], Awaitable[web.Response]]
    Key = tuple[str, Hidden]  # the address, and what was hidden: nothing shows for longer than it may

MOST_KEPT = 256  # addresses
MOST_BYTES = 64 * 1024 * 1024
SMALL = 1_000  # bytes that are not worth compressing
LEVEL = 4  # of compression: pages are made for few readers each
PRIVATE = "private, no-store"
LOOK = 2.0  # seconds for the look whether a page is kept: making it takes its own


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A page as it goes out."""

    body: bytes
    packed: bytes  # the same, gzip
    etag: str
    content_type: str
    until: float  # epoch milliseconds


class Kept:
    """Pages shown lately to anybody; two who ask for one at the same time wait for one."""

    def __init__(self) -> None:
        self._pages: OrderedDict[Key, Sent] = OrderedDict()
        self._making: dict[Key, asyncio.Lock] = {}
        self._size = 0

    def find(self, key: Key, now: float) -> Sent | None:
        """Return a page that may still be shown."""
        found = self._pages.get(key)
        return found if found is not None and now < found.until else None

    def keep(self, key: Key, page: Sent) -> None:
        """Remember a page; the oldest ones make room."""
        self._forget(key)
        self._pages[key] = page
        self._size += len(page.body) + len(page.packed)
        while len(self._pages) > MOST_KEPT or self._size > MOST_BYTES:
            self._forget(next(iter(self._pages)))

    def maker(self, key: Key) -> asyncio.Lock:
        """Return what lets one at a time make a page."""
        self._making = {name: lock for name, lock in self._making.items() if lock.locked()}
        return self._making.setdefault(key, asyncio.Lock())

    def _forget(self, key: Key) -> None:
        page = self._pages.pop(key, None)
        if page is not None:
            self._size -= len(page.body) + len(page.packed)


KEPT: web.AppKey[Kept] = web.AppKey("kept_pages", Kept)


async def answer(request: web.Request, make: Make) -> web.StreamResponse:
    """Answer with a page: as it was kept, or as it is made now."""
    context, elsewhere = request.app[CONTEXT], request.app[ASIDE]
    seconds = context.settings.page_cache
    if access.reads_private(request):
        made = await elsewhere.make(request, make)
        made.headers["Cache-Control"] = PRIVATE
        return made
    key = await _key(request) if seconds else None
    if key is None:
        return _send(request, await elsewhere.make(request, functools.partial(_sealed, make)))
    kept, now = request.app[KEPT], context.clock.now()
    found: Sent | web.Response | None = kept.find(key, now)
    if found is None:
        async with turn(kept.maker(key), elsewhere.patience):
            found = kept.find(key, now)
            if found is None:
                until = now + seconds * 1000
                sealed = functools.partial(_sealed, make, until=until)
                found = await elsewhere.make(request, sealed)
                if isinstance(found, Sent):  # by what it was made with: that may have changed since the look
                    kept.keep((request.path_qs, request[access.HIDDEN]), found)
    return _send(request, found)


async def _sealed(make: Make, *, until: float = 0) -> Sent | web.Response:
    """Return a page ready to be sent; a refusal as it is."""
    made = await make()
    return seal(made, until=until) if made.status == 200 else made


async def _key(request: web.Request) -> Key | None:
    """Return what a page is kept by; None when the database cannot tell what it may show."""
    try:
        async with request.app[CONTEXT].store.read(silence=LOOK) as tx:
            return request.path_qs, await access.of_request(request, tx)
    except StoreUnavailable:
        return None


def _refused(made: web.Response) -> web.Response:
    made.headers.setdefault("Cache-Control", "no-cache")
    return made


def seal(made: web.Response, *, until: float = 0) -> Sent:
    """Return an answer ready to be sent any number of times."""
    body = made.body if isinstance(made.body, bytes) else b""
    return Sent(
        body=body,
        packed=gzip.compress(body, LEVEL, mtime=0) if len(body) > SMALL else b"",
        etag=hashlib.sha256(body).hexdigest()[:20],
        content_type=made.headers["Content-Type"],
        until=until,
    )


def _send(request: web.Request, page: Sent | web.Response, *, control: str = "") -> web.Response:
    if isinstance(page, web.Response):
        return _refused(page)
    seconds = request.app[CONTEXT].settings.page_cache
    headers = {
        "Cache-Control": control or (f"private, max-age={seconds}" if seconds else "private, no-cache"),
        "ETag": f'W/"{page.etag}"',
        "Vary": "Accept-Encoding, Authorization, Cookie",
    }
    if any(tag.value == page.etag for tag in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    headers["Content-Type"] = page.content_type
    if page.packed and "gzip" in request.headers.get("Accept-Encoding", ""):
        return web.Response(body=page.packed, headers=headers | {"Content-Encoding": "gzip"})
    return web.Response(body=page.body, headers=headers)


def send(request: web.Request, page: Sent, *, control: str) -> web.Response:
    """Answer with what never changes while the bot runs, such as the stylesheet."""
    return _send(request, page, control=control)
