"""Lists as they are sent to CI: kept as rows, answered with an ETag, good for five minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from bot.ci.disabled import list_rows
from bot.ci.disabled.list_cache import SENT_LISTS
from bot.web import access, page_cache
from bot.web.page_cache import CachedPage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.ci.disabled.tables import ListMark
    from bot.db.transaction import Transaction

CONTROL = "public, max-age=300"


def seal_list(content: Mapping[str, object]) -> CachedPage:
    """Return a list as it is sent."""
    body = msgspec.json.encode(content, order="sorted")
    return page_cache.seal(web.Response(body=body, content_type="application/json", charset="utf-8"))


async def page_for_request(tx: Transaction, request: web.Request, made: ListMark) -> CachedPage:
    """Return a list with no more of it than the answer to a request needs: it may be large."""
    if any(tag.value == made["etag"] for tag in request.if_none_match or ()):
        return _page(made)
    compressed = "gzip" in request.headers.get("Accept-Encoding", "")
    # but for the moment it was made at: half hourly it is mostly the same list
    key, cache = (made["repository_id"], made["name"], made["etag"], compressed), request.app[SENT_LISTS]
    found = cache.find(key)
    if found is None:
        gzipped = await list_rows.gzipped_body(tx, made) if compressed else b""
        body = b"" if gzipped else await list_rows.last_body(tx, made["repository_id"], made["name"]) or b""
        found = _page(made, body, gzipped)
        cache.store(key, found, len(body) + len(gzipped))
    return found


def _page(made: ListMark, body: bytes = b"", gzipped: bytes = b"") -> CachedPage:
    content_type = "application/json; charset=utf-8"
    return CachedPage(body=body, gzipped=gzipped, etag=made["etag"], content_type=content_type, expires_at=0)


def send_list(request: web.Request, page: CachedPage) -> web.Response:
    """Answer with a list; what is private is not kept by caches."""
    control = page_cache.PRIVATE if access.reads_private(request) else CONTROL
    return page_cache.send(request, page, control=control)
