"""Pages of the keys of an export, for what goes through all that is stored: filling in, withdrawing, checking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.db.exports import decode_key
from bot.ingest import watched

if TYPE_CHECKING:
    from bot.db.exports import Export, Key
    from bot.db.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class Page:
    """Some keys in order, with the time of each; `after` is where the next page begins, None: this is the last."""

    times: dict[Key, int]  # epoch milliseconds
    after: Key | None


async def read_page(
    tx: Transaction,
    export: Export,
    *,
    after: str | None,
    limit: int,
    since: int = 0,
    repository_id: int | None = None,
) -> Page:
    """Return the next keys; only of rows since a time, or only of one repository."""
    columns = list(export.key_columns)
    at = sa.func.max(export.day_column)
    query = sa.select(*columns, at).group_by(*columns).order_by(*columns).limit(limit)
    if after is not None:
        query = query.where(_behind(columns, decode_key(after)))
    if since:
        query = query.where(export.day_column >= since)
    if export.condition is not None:
        query = query.where(export.condition)
    if repository_id is not None:
        query = query.where(await _of_repository(tx, export, repository_id))
    rows = [tuple(row) for row in await tx.run(query)]
    return Page(
        times={row[:-1]: row[-1] or 0 for row in rows}, after=rows[-1][:-1] if len(rows) == limit else None
    )


def _behind(columns: list[sa.Column[Any]], key: Key) -> sa.ColumnElement[bool]:
    """Return the condition that a key comes after another; both databases use the index for pairs in this form."""
    return sa.tuple_(*columns) > sa.tuple_(*(sa.literal(value) for value in key))


async def _of_repository(tx: Transaction, export: Export, repository_id: int) -> sa.ColumnElement[bool]:
    names = sorted(await watched.names_of_ids(tx, {repository_id}))
    conditions = []
    for name in export.repositories:
        column = export.table.c[name]
        is_text = isinstance(column.type, sa.String)
        conditions.append(sa.func.lower(column).in_(names) if is_text else column == repository_id)
    return sa.or_(sa.false(), *conditions)
