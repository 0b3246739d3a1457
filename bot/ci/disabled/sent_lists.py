"""Lists as they are sent to CI: kept as rows, answered with an ETag, good for five minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import sqlalchemy as sa
from aiohttp import web

from bot.ci.disabled.list_cache import SENT_LISTS
from bot.ci.disabled.tables import ci_list
from bot.web import access, page_cache
from bot.web.page_cache import CachedPage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.db.transaction import Transaction

CONTROL = "public, max-age=300"
LIST = ci_list.c
_MINE = (LIST.repository_id == sa.bindparam("repository_id"), LIST.name == sa.bindparam("name"))
_MARK = sa.select(LIST.etag, LIST.made_at).where(*_MINE)
_BODY = sa.select(LIST.body).where(*_MINE)
_GZIPPED = sa.select(LIST.gzipped).where(*_MINE)


def seal_list(content: Mapping[str, object]) -> CachedPage:
    """Return a list as it is sent."""
    body = msgspec.json.encode(content, order="sorted")
    return page_cache.seal(web.Response(body=body, content_type="application/json", charset="utf-8"))


async def store_list(tx: Transaction, repository_id: int, name: str, page: CachedPage) -> bool:
    """Store a list; returns whether it differs from the one before."""
    mine = (LIST.repository_id == repository_id, LIST.name == name)
    before = (await tx.run(sa.select(LIST.etag).where(*mine))).scalar()
    if before == page.etag:
        await tx.run(sa.update(ci_list).where(*mine).values(made_at=tx.now))
        return False
    new = {"body": page.body, "gzipped": page.gzipped, "etag": page.etag, "made_at": tx.now}
    row = {"repository_id": repository_id, "name": name} | new
    await tx.upsert(ci_list, [row], replaced=list(new))
    return True


async def last_body(tx: Transaction, repository_id: int, name: str) -> bytes | None:
    """Return a list as it was made last."""
    body: bytes | None = (await tx.run(_BODY, _key(repository_id, name))).scalar()
    return body


class Mark(NamedTuple):
    """Which making of a list it is: with the same mark, the list and what it was made of are the same."""

    repository_id: int
    name: str
    etag: str
    made_at: int


async def find_mark(tx: Transaction, repository_id: int, name: str) -> Mark | None:
    """Return the mark of a list as it was made last."""
    found = (await tx.run(_MARK, _key(repository_id, name))).one_or_none()
    return None if found is None else Mark(repository_id, name, *found)


async def page_for_request(tx: Transaction, request: web.Request, made: Mark) -> CachedPage:
    """Return a list with no more of it than the answer to a request needs: it may be large."""
    if any(tag.value == made.etag for tag in request.if_none_match or ()):
        return _page(made)
    compressed = "gzip" in request.headers.get("Accept-Encoding", "")
    # but for the moment it was made at: half hourly it is mostly the same list
    key, cache = (made.repository_id, made.name, made.etag, compressed), request.app[SENT_LISTS]
    found = cache.find(key)
    if found is None:
        mine = _key(made.repository_id, made.name)
        gzipped = (await tx.run(_GZIPPED, mine)).scalar_one() if compressed else b""
        body = b"" if gzipped else (await tx.run(_BODY, mine)).scalar_one()
        found = _page(made, body, gzipped)
        cache.store(key, found, len(body) + len(gzipped))
    return found


def _page(made: Mark, body: bytes = b"", gzipped: bytes = b"") -> CachedPage:
    content_type = "application/json; charset=utf-8"
    return CachedPage(body=body, gzipped=gzipped, etag=made.etag, content_type=content_type, expires_at=0)


def _key(repository_id: int, name: str) -> dict[str, object]:
    return {"repository_id": repository_id, "name": name}


async def list_made_at(tx: Transaction, repository_id: int, name: str) -> int | None:
    """Return when a list was made last."""
    query = sa.select(LIST.made_at).where(LIST.repository_id == repository_id, LIST.name == name)
    at: int | None = (await tx.run(query)).scalar()
    return at


def send_list(request: web.Request, page: CachedPage) -> web.Response:
    """Answer with a list; what is private is not kept by caches."""
    control = page_cache.PRIVATE if access.reads_private(request) else CONTROL
    return page_cache.send(request, page, control=control)
