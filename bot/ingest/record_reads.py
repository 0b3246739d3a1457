"""Reading records: one, a page of a repository's newest, and pull requests as our records know them."""

from __future__ import annotations

import functools
import itertools
import operator
from typing import TYPE_CHECKING, Any, TypedDict

import sqlalchemy as sa

from bot.core.json_fields import Kind
from bot.ingest import watched as names
from bot.ingest.rows import PullRow
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.db.transaction import Transaction
    from bot.ingest.records import RecordType, Values
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
    return functools.reduce(operator.add, lengths)


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


MOST_HEADS = 1_000  # of one pull request


class LabelEventRow(TypedDict):
    """A label put on a pull request or taken off."""

    action: str | None
    label_name: str | None
    updated_at: int | None


class _HeadRow(TypedDict):
    head_sha: str
    updated_at: int | None


class _CandidateRow(TypedDict):
    head_sha: str
    number: int
    user_id: int | None


class _NameRow(TypedDict):
    repo: str
    number: int


async def get(tx: Transaction, repo: str, number: int) -> PullRow | None:
    """Return the pull request's record."""
    table = records["pull_request"]
    query = sa.select(table).where(sa.func.lower(table.c.repo) == repo.lower(), table.c.number == number)
    return await tx.row_as(PullRow, query.order_by(table.c.received_at.desc()))


async def all_open(tx: Transaction) -> list[tuple[str, int]]:
    """Return the open pull requests we know of, in any repository, the newest first."""
    table = records["pull_request"]
    query = sa.select(table.c.repo, table.c.number).where(table.c.state == "open")
    rows = await tx.rows_as(_NameRow, query.order_by(table.c.number.desc()))
    return [(row["repo"], row["number"]) for row in rows]


async def heads(tx: Transaction, pull: PullRow) -> dict[str, int]:
    """Return when each head of a pull request was last reported, newest first (epoch milliseconds).

    Heads are found by the repository's id, so those of a renamed repository count too.
    """
    head = records["pull_head"].c
    query = sa.select(head.head_sha, head.updated_at).where(
        head.repository_id == pull["repository_id"], head.number == pull["number"]
    )
    query = query.order_by(head.updated_at.desc(), head.received_at.desc()).limit(MOST_HEADS)
    rows = await tx.rows_as(_HeadRow, query)
    return {row["head_sha"]: row["updated_at"] or 0 for row in rows}


async def label_events(tx: Transaction, repo: str, number: int) -> list[LabelEventRow]:
    """Return the newest label events of a pull request; GitHub's times are in seconds, so several may share one."""
    table = records["pull_label_event"]
    query = sa.select(
        table.c.action, table.c.label_name, table.c.pull_request_updated_at.label("updated_at")
    ).where(sa.func.lower(table.c.repo) == repo.lower(), table.c.pull_request_number == number)
    return await tx.rows_as(LabelEventRow, query.order_by(table.c.pull_request_updated_at.desc()).limit(10))


async def deciders(tx: Transaction, repo: str, heads: Collection[str]) -> dict[str, list[int]]:
    """Return, by commit, the open pull requests with that head that decide its gate: a commit has one gate.

    The first is the one that had the commit first, not the one with the lowest number: anybody may push another's
    commit to an old pull request of theirs. The others have the same author, and may target other base branches.
    """
    found: dict[str, list[_CandidateRow]] = {}
    for row in await tx.rows_as(_CandidateRow, _deciders(), {"heads": sorted(heads), "of": repo.lower()}):
        found.setdefault(row["head_sha"], []).append(row)
    return {
        sha: [row["number"] for row in rows if row["user_id"] == rows[0]["user_id"]]
        for sha, rows in found.items()
    }


@functools.cache
def _deciders() -> sa.Select[*tuple[Any, ...]]:
    """Return the query, put together once, since every verdict asks it."""
    pull, head = records["pull_request"].c, records["pull_head"].c
    same = (
        head.repository_id == pull.repository_id,
        head.number == pull.number,
        head.head_sha == pull.head_sha,
    )
    return (
        sa.select(pull.head_sha, pull.number, pull.user_id)
        .outerjoin_from(records["pull_request"], records["pull_head"], sa.and_(*same))
        .where(
            pull.head_sha.in_(sa.bindparam("heads", expanding=True)),
            sa.func.lower(pull.repo) == sa.bindparam("of"),
            pull.state == "open",
        )
        .order_by(head.received_at.nulls_last(), pull.number)
    )
