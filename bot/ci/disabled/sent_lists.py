"""Lists as they are sent to CI: kept as rows, answered with an ETag, good for five minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import sqlalchemy as sa
from aiohttp import web

from bot.ci.disabled.tables import ci_list
from bot.web import access, page_cache
from bot.web.page_cache import CachedPage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.db.transaction import Transaction

CONTROL = "public, max-age=300"
LIST = ci_list.c


def sealed(content: Mapping[str, object]) -> CachedPage:
    """Return a list as it is sent."""
    body = msgspec.json.encode(content, order="sorted")
    return page_cache.seal(web.Response(body=body, content_type="application/json", charset="utf-8"))


async def store(tx: Transaction, repository_id: int, name: str, page: CachedPage) -> bool:
    """Store a list; returns whether it differs from the one before."""
    mine = (LIST.repository_id == repository_id, LIST.name == name)
    before = (await tx.run(sa.select(LIST.etag).where(*mine))).scalar()
    if before == page.etag:
        await tx.run(sa.update(ci_list).where(*mine).values(made_at=tx.now))
        return False
    new = {"body": page.body, "gzipped": page.gzipped, "etag": page.etag, "made_at": tx.now}
    insert = tx.insert(ci_list).values(repository_id=repository_id, name=name, **new)
    await tx.run(insert.on_conflict_do_update(index_elements=["repository_id", "name"], set_=new))
    return True


async def last(tx: Transaction, repository_id: int, name: str) -> bytes | None:
    """Return a list as it was made last."""
    query = sa.select(LIST.body).where(LIST.repository_id == repository_id, LIST.name == name)
    body: bytes | None = (await tx.run(query)).scalar()
    return body


async def wanted(tx: Transaction, request: web.Request, repository_id: int, name: str) -> CachedPage | None:
    """Return a list as it was made last, with no more of it than the answer to a request needs: it may be large."""
    mine = (LIST.repository_id == repository_id, LIST.name == name)
    small = sa.func.length(LIST.gzipped) == 0
    found = (await tx.run(sa.select(LIST.etag, small.label("small")).where(*mine))).one_or_none()
    if found is None:
        return None
    body = gzipped = b""
    if all(tag.value != found.etag for tag in request.if_none_match or ()):
        compressed = "gzip" in request.headers.get("Accept-Encoding", "") and not found.small
        chosen = (
            await tx.run(sa.select(LIST.gzipped if compressed else LIST.body).where(*mine))
        ).scalar_one()
        body, gzipped = (b"", chosen) if compressed else (chosen, b"")
    return CachedPage(
        body=body,
        gzipped=gzipped,
        etag=found.etag,
        content_type="application/json; charset=utf-8",
        expires_at=0,
    )


async def made_at(tx: Transaction, repository_id: int, name: str) -> int | None:
    """Return when a list was made last."""
    query = sa.select(LIST.made_at).where(LIST.repository_id == repository_id, LIST.name == name)
    at: int | None = (await tx.run(query)).scalar()
    return at


def answer(request: web.Request, page: CachedPage) -> web.Response:
    """Answer with a list; what is private is kept by nobody."""
    control = page_cache.PRIVATE if access.reads_private(request) else CONTROL
    return page_cache.send(request, page, control=control)
