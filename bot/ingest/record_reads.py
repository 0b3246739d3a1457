"""Reading records: one, or a page of a repository's newest."""

from __future__ import annotations

import itertools
import operator
from functools import reduce
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.core.json_fields import Kind
from bot.ingest import repository_names as names
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.transaction import Transaction
    from bot.ingest.merging import Values
    from bot.ingest.records import RecordType
    from bot.web.access import Private

MOST_TEXT = 8_000_000  # characters of records read for one page: a single commit message may have more


async def record(
    tx: Transaction,
    kind: RecordType[Any],
    repo: str,
    identifier: str | int,
    *,
    hidden: Private,
    attempt: int | None = None,
) -> Values | None:
    """Return one record of a repository, under any of its names; `identifier` is a number where there is one."""
    table = records[kind.table]
    numbered = kind.table in {"issue", "pull_request"}
    column = table.c.number if numbered else table.c[kind.key[0]]
    query = (await _of_repository(tx, kind, repo, hidden)).where(column == identifier)
    if attempt is not None:
        query = query.where(table.c.run_attempt == attempt)
    return await tx.row(query.order_by(*(part.desc() for part in _order(kind))).limit(1))


async def record_page(
    tx: Transaction,
    kind: RecordType[Any],
    repo: str,
    *,
    hidden: Private,
    before: tuple[str | int, ...] | None,
    limit: int,
) -> tuple[list[Values], bool]:
    """Return a page of a repository's records, newest first, under any of its names, and whether more follow.

    `before` holds the values of `order_of` of the last record seen. A page ends early where its texts are long.
    """
    order = _order(kind)
    query = await _of_repository(tx, kind, repo, hidden)
    if before:
        query = query.where(after(order, before))
    query = query.order_by(*(part.desc() for part in order))
    sizes = (await tx.run(query.with_only_columns(_size(kind)).limit(limit + 1))).scalars().all()
    fitting = sum(size <= MOST_TEXT for size in itertools.accumulate(sizes[:limit]))
    fitting = max(fitting, min(len(sizes), 1))
    return await tx.rows(query.limit(fitting)), fitting < len(sizes)


def _size(kind: RecordType[Any]) -> sa.ColumnElement[int]:
    """Return how many characters the texts of a record have."""
    table = records[kind.table]
    long = [table.c[one.name] for one in kind.columns if one.kind in {Kind.TEXT, Kind.TEXTS, Kind.JSON}]
    lengths = [sa.func.coalesce(sa.func.length(sa.cast(one, sa.Text)), 0) for one in long]
    return reduce(operator.add, lengths)


def after(order: Sequence[sa.ColumnElement[Any]], before: tuple[str | int, ...]) -> sa.ColumnElement[bool]:
    """Return the condition for rows that follow, newest first, the one with these values."""
    last = [sa.literal(value, part.type) for value, part in zip(before, order, strict=True)]
    return sa.tuple_(*order) < sa.tuple_(*last)


async def _of_repository(
    tx: Transaction, kind: RecordType[Any], repo: str, hidden: Private
) -> sa.Select[Any]:
    """Return the query for a repository's records, without those that must not be shown."""
    table = records[kind.table]
    name, known = sa.func.lower(table.c.repo), await names.of_same(tx, repo)
    query = sa.select(table).where(name.in_(sorted(known)))
    if hidden.ids or hidden.names:
        query = query.where(
            table.c.repository_id.not_in(sorted(hidden.ids)), name.not_in(sorted(hidden.names))
        )
    return query


def order_of(kind: RecordType[Any]) -> tuple[str, ...]:
    """Return the columns records are sorted by: GitHub's ids grow with time, GUIDs of deliveries do not."""
    return ("received_at", "guid") if "guid" in kind.key else kind.key


def _order(kind: RecordType[Any]) -> list[sa.Column[Any]]:
    return [records[kind.table].c[name] for name in order_of(kind)]
