"""Statements on lists as they are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.disabled.tables import ListMark, ci_list
from bot.db.rows import select
from bot.db.statements import RowStatement, Statement

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.web.page_cache import CachedPage

LIST = ci_list.c
SAME_LIST = (LIST.repository_id == sa.bindparam("repository_id"), LIST.name == sa.bindparam("name"))
MARK = RowStatement(select(ListMark, ci_list).where(*SAME_LIST))
BODY = Statement(sa.select(LIST.body).where(*SAME_LIST))
GZIPPED = Statement(sa.select(LIST.gzipped).where(*SAME_LIST))


async def store_list(tx: Transaction, repository_id: int, name: str, page: CachedPage) -> bool:
    """Store a list; returns whether it differs from the one before."""
    before = await find_mark(tx, repository_id, name)
    if before and before["etag"] == page.etag:
        mine = (LIST.repository_id == repository_id, LIST.name == name)
        await tx.run(sa.update(ci_list).where(*mine).values(made_at=tx.now))
        return False
    new = {"body": page.body, "gzipped": page.gzipped, "etag": page.etag, "made_at": tx.now}
    row = {"repository_id": repository_id, "name": name} | new
    await tx.upsert(ci_list, [row], replaced=list(new))
    tx.note_changed("ci_list", [row])
    return True


async def find_mark(tx: Transaction, repository_id: int, name: str) -> ListMark | None:
    """Return the mark of a list as it was made last."""
    return await tx.fetch_first(MARK, {"repository_id": repository_id, "name": name})


async def last_body(tx: Transaction, repository_id: int, name: str) -> bytes | None:
    """Return a list as it was made last."""
    body: bytes | None = (await tx.run(BODY, {"repository_id": repository_id, "name": name})).scalar()
    return body


async def gzipped_body(tx: Transaction, mark: ListMark) -> bytes:
    """Return a list as it was compressed; empty where it is small."""
    key = {"repository_id": mark["repository_id"], "name": mark["name"]}
    content: bytes = (await tx.run(GZIPPED, key)).scalar_one()
    return content
