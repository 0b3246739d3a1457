"""Reading records: one, a page of a repository's newest, and pull requests as our records know them."""

from __future__ import annotations

import functools
import itertools
import operator
from typing import TYPE_CHECKING, Any, TypedDict

import sqlalchemy as sa

from bot.core.json_fields import Kind
from bot.db.columns import metadata, unindexed
from bot.db.rows import select
from bot.db.statements import RowStatement, Statement, literal_word
from bot.db.transaction import Slot
from bot.ingest import watched as names
from bot.ingest.rows import PullRow
from bot.ingest.tables import records

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.db.transaction import Transaction
    from bot.ingest.records import RecordType, Values
    from bot.web.access import Hidden

# what is known of all repositories, read once in a transaction: name, and whether it is public
NAMES_OF_REPOSITORIES: Slot[dict[int, tuple[str, bool]]] = Slot("repository_names", dict)
MOST_TEXT = 8_000_000  # characters of records read for one page: a single commit message may have more


async def shown_repositories(tx: Transaction, hidden: Hidden, *, private: bool) -> dict[int, str]:
    """Return the names of the repositories that may be shown: the public ones, with `private` all; by id.

    One that is not known to be public is treated as a private one.
    """
    known = tx.slot(NAMES_OF_REPOSITORIES)
    if not known:
        repository = records["repository"].c
        query = sa.select(repository.repository_id, repository.full_name, repository.private)
        found = (await tx.run(query.where(repository.full_name.is_not(None)))).all()
        known |= {row.repository_id: (row.full_name, row.private is False) for row in found}
    return {
        identifier: name
        for identifier, (name, public) in known.items()
        if (public or private) and not hidden.has(name, identifier)
    }


async def record(
    tx: Transaction,
    kind: RecordType[Any],
    repo: str,
    identifier: str | int,
    *,
    hidden: Hidden,
    attempt: int | None = None,
) -> Values | None:
    """Return one record of a repository, under any of its names; `identifier` is a number where there is one."""
    table = metadata.tables[kind.table]
    numbered = kind.table in {"issue", "pull_request"}
    column = table.c.number if numbered else table.c[identified_by(kind)]
    query = (await _records_query(tx, kind, repo, hidden)).where(column == identifier)
    if attempt is not None:
        query = query.where(table.c.run_attempt == attempt)
    return await tx.row(query.order_by(*(part.desc() for part in _order(kind))).limit(1))


async def record_page(
    tx: Transaction,
    kind: RecordType[Any],
    repo: str,
    *,
    hidden: Hidden,
    before: tuple[str | int, ...] | None,
    limit: int,
) -> tuple[list[Values], bool]:
    """Return a page of a repository's records, newest first, under any of its names, and whether more follow.

    `before` holds the values of `order_of` of the last record seen. A page ends early where its texts are long.
    """
    order = _order(kind)
    query = await _records_query(tx, kind, repo, hidden)
    if before:
        query = query.where(after(order, before))
    query = query.order_by(*(part.desc() for part in order))
    sizes = (await tx.run(query.with_only_columns(_size(kind)).limit(limit + 1))).scalars()
    fitting = sum(size <= MOST_TEXT for size in itertools.accumulate(sizes[:limit]))
    fitting = max(fitting, min(len(sizes), 1))
    return await tx.rows(query.limit(fitting)), fitting < len(sizes)


def _size(kind: RecordType[Any]) -> sa.ColumnElement[int]:
    """Return how many characters the texts of a record have."""
    table = metadata.tables[kind.table]
    long = [table.c[one.name] for one in kind.columns if one.kind in {Kind.TEXT, Kind.TEXTS, Kind.JSON}]
    lengths = [sa.func.coalesce(sa.func.length(sa.cast(one, sa.Text)), 0) for one in long]
    return functools.reduce(operator.add, lengths)


def after(order: Sequence[sa.ColumnElement[Any]], before: tuple[str | int, ...]) -> sa.ColumnElement[bool]:
    """Return the condition for rows that follow, newest first, the one with these values."""
    last = [sa.literal(value, part.type) for value, part in zip(before, order, strict=True)]
    return sa.tuple_(*order) < sa.tuple_(*last)


async def _records_query(tx: Transaction, kind: RecordType[Any], repo: str, hidden: Hidden) -> sa.Select[Any]:
    """Return the query for a repository's records, without those that must not be shown."""
    table = metadata.tables[kind.table]
    name, known = sa.func.lower(table.c.repo), await names.names_of_same_repository(tx, repo)
    query = sa.select(table).where(name.in_(sorted(known)))
    if hidden.ids or hidden.names:
        query = query.where(
            table.c.repository_id.not_in(sorted(hidden.ids)), name.not_in(sorted(hidden.names))
        )
    return query


def identified_by(kind: RecordType[Any]) -> str:
    """Return the column that a record is asked for by."""
    return kind.order[-1] if kind.order else kind.key[0]


def order_of(kind: RecordType[Any]) -> tuple[str, ...]:
    """Return the columns records are sorted by: GitHub's ids grow with time, GUIDs of deliveries do not."""
    return kind.order or (("received_at", "guid") if "guid" in kind.key else kind.key)


def _order(kind: RecordType[Any]) -> list[sa.Column[Any]]:
    return [metadata.tables[kind.table].c[name] for name in order_of(kind)]


MOST_HEADS = 1_000  # of one pull request
# put together once: every verdict asks these
_PULL, _HEAD, _LABEL = records["pull_request"].c, records["pull_head"].c, records["pull_label_event"].c
GET = RowStatement(
    select(PullRow, records["pull_request"])
    .where(sa.func.lower(_PULL.repo) == sa.bindparam("of_repo"), _PULL.number == sa.bindparam("of_number"))
    .order_by(_PULL.received_at.desc())
)
HEADS = Statement(
    sa.select(_HEAD.head_sha, _HEAD.updated_at)
    .where(_HEAD.repository_id == sa.bindparam("of_repository"), _HEAD.number == sa.bindparam("of_number"))
    .order_by(_HEAD.updated_at.desc(), _HEAD.received_at.desc())
    .limit(MOST_HEADS)
)
LABEL_EVENTS = Statement(
    sa.select(_LABEL.action, _LABEL.label_name, _LABEL.pull_request_updated_at.label("updated_at"))
    .where(
        sa.func.lower(_LABEL.repo) == sa.bindparam("of_repo"),
        _LABEL.pull_request_number == sa.bindparam("of_number"),
    )
    .order_by(_LABEL.pull_request_updated_at.desc())
    .limit(10)
)
DECIDERS = Statement(
    sa.select(_PULL.head_sha, _PULL.number, _PULL.user_id)
    .outerjoin_from(
        records["pull_request"],
        records["pull_head"],
        sa.and_(
            _HEAD.repository_id == _PULL.repository_id,
            _HEAD.number == _PULL.number,
            _HEAD.head_sha == _PULL.head_sha,
        ),
    )
    .where(
        _PULL.head_sha.in_(sa.bindparam("heads", expanding=True)),
        unindexed(sa.func.lower(_PULL.repo)) == sa.bindparam("of_repo"),
        _PULL.state == literal_word("open"),
    )
    .order_by(_HEAD.received_at.nulls_last(), _PULL.number)
)


class LabelEventRow(TypedDict):
    """A label put on a pull request or taken off."""

    action: str | None
    label_name: str | None
    updated_at: int | None


async def get(tx: Transaction, repo: str, number: int) -> PullRow | None:
    """Return the pull request's record."""
    return await tx.fetch_first(GET, {"of_repo": repo.lower(), "of_number": number})


async def all_open(tx: Transaction) -> list[tuple[str, int]]:
    """Return the open pull requests we know of, in any repository, the newest first."""
    table = records["pull_request"]
    query = sa.select(table.c.repo, table.c.number).where(table.c.state == "open")
    return [(repo, number) for repo, number in await tx.run(query.order_by(table.c.number.desc()))]


async def heads(tx: Transaction, pull: PullRow) -> dict[str, int]:
    """Return when each head of a pull request was last reported, newest first (epoch milliseconds).

    Heads are found by the repository's id, so those of a renamed repository count too.
    """
    mine = {"of_repository": pull["repository_id"], "of_number": pull["number"]}
    return {head_sha: updated_at or 0 for head_sha, updated_at in await tx.run(HEADS, mine)}


async def label_events(tx: Transaction, repo: str, number: int) -> list[LabelEventRow]:
    """Return the newest label events of a pull request; GitHub's times are in seconds, so several may share one."""
    return await tx.rows_as(LabelEventRow, LABEL_EVENTS, {"of_repo": repo.lower(), "of_number": number})


async def deciders(tx: Transaction, repo: str, heads: Collection[str]) -> dict[str, list[int]]:
    """Return, by commit, the open pull requests with that head that decide its gate: a commit has one gate.

    The first is the one that had the commit first, not the one with the lowest number: authors may push another's
    commit to an old pull request of theirs. The others have the same author, and may target other base branches.
    """
    found: dict[str, list[tuple[int, int | None]]] = {}
    for head_sha, number, user_id in await tx.run(
        DECIDERS, {"heads": sorted(heads), "of_repo": repo.lower()}
    ):
        found.setdefault(head_sha, []).append((number, user_id))
    return {
        sha: [number for number, author in pulls if author == pulls[0][1]] for sha, pulls in found.items()
    }
