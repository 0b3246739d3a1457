"""Records: writing those that a transaction gathers, each merged with its row, and reading them."""

from __future__ import annotations

import functools
import itertools
import operator
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypedDict

import sqlalchemy as sa

from bot.core.json_fields import Kind
from bot.db.rows import metadata, select, unindexed
from bot.db.statements import RowStatement, Statement, literal_word
from bot.db.transaction import Slot, among_given
from bot.ingest import repositories
from bot.ingest.record_rows import PullRow
from bot.ingest.tables import Record, Values, merge, records

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.db.transaction import Changed, Transaction
    from bot.ingest.tables import RecordType
    from bot.web.access import Hidden

KEYS_PER_QUERY = 200  # SQLite limits expression depth and bound parameters
SHARED = "repository"  # the table whose row most deliveries repeat unchanged
Key = tuple[Any, ...]
RECORDS: Slot[list[Record]] = Slot("records", list)
# what is known of all repositories, read once in a transaction: name, and whether it is public
NAMES_OF_REPOSITORIES: Slot[dict[int, tuple[str, bool]]] = Slot("repository_names", dict)
MOST_TEXT = 8_000_000  # characters of records read for one page: a single commit message may have more
MOST_HEADS = 1_000  # of one pull request
# put together once: every verdict asks these
_PULL, _HEAD, _LABEL = records["pull_request"].c, records["pull_head"].c, records["pull_label_event"].c
PULL_BY_NUMBER = RowStatement(
    select(PullRow, records["pull_request"])
    .where(sa.func.lower(_PULL.repo) == sa.bindparam("of_repo"), _PULL.number == sa.bindparam("of_number"))
    .order_by(_PULL.received_at.desc())
)
HEADS_OF_PULL = Statement(
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
DECIDING_PULLS = Statement(
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


def add_record(tx: Transaction, version: Record) -> None:
    """Merge a record into its table before the transaction ends."""
    tx.slot(RECORDS).append(version)


async def write_records(tx: Transaction, _changed: Changed) -> None:
    """Merge every record into its table: the first hook before a commit, so that later ones see the merged rows."""
    gathered = tx.empty(RECORDS)
    by_table: dict[str, dict[Key, list[Record]]] = {}
    for record in gathered:
        by_table.setdefault(record.type.table, {}).setdefault(record.key, []).append(record)
    # always in one order, so that two transactions never wait for each other
    for table in sorted(by_table):
        await _merge(tx, table, by_table[table])
    await repositories.note_names(tx, gathered)


async def read_visible_repositories(tx: Transaction, hidden: Hidden, *, private: bool) -> dict[int, str]:
    """Return the names of the repositories that may be shown, by id: the public ones, or all with `private`.

    One that is not known to be public is treated as a private one.
    """
    known = tx.slot(NAMES_OF_REPOSITORIES)
    if not known:
        repository = records["repository"].c
        query = sa.select(repository.repository_id, repository.full_name, repository.private)
        rows = (await tx.run(query.where(repository.full_name.is_not(None)))).all()
        known |= {row.repository_id: (row.full_name, row.private is False) for row in rows}
    return {
        identifier: name
        for identifier, (name, public) in known.items()
        if (public or private) and not hidden.has(name, identifier)
    }


async def read_record(
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
    column = table.c.number if numbered else table.c[identifying_column(kind)]
    query = (await _records_query(tx, kind, repo, hidden)).where(column == identifier)
    if attempt is not None:
        query = query.where(table.c.run_attempt == attempt)
    return await tx.row(query.order_by(*(part.desc() for part in _order(kind))).limit(1))


async def read_record_page(
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
        query = query.where(follows_row(order, before))
    query = query.order_by(*(part.desc() for part in order))
    sizes = (await tx.run(query.with_only_columns(_text_size(kind)).limit(limit + 1))).scalars()
    fitting = sum(size <= MOST_TEXT for size in itertools.accumulate(sizes[:limit]))
    fitting = max(fitting, min(len(sizes), 1))
    return await tx.rows(query.limit(fitting)), fitting < len(sizes)


def follows_row(
    order: Sequence[sa.ColumnElement[Any]], before: tuple[str | int, ...]
) -> sa.ColumnElement[bool]:
    """Return the condition for rows that follow, newest first, the one with these values."""
    last = [sa.literal(value, part.type) for value, part in zip(before, order, strict=True)]
    return sa.tuple_(*order) < sa.tuple_(*last)


def identifying_column(kind: RecordType[Any]) -> str:
    """Return the column that a record is asked for by."""
    return kind.order[-1] if kind.order else kind.key[0]


def sort_columns(kind: RecordType[Any]) -> tuple[str, ...]:
    """Return the columns records are sorted by: GitHub's ids grow with time, GUIDs of deliveries do not."""
    return kind.order or (("received_at", "guid") if "guid" in kind.key else kind.key)


async def read_pull(tx: Transaction, repo: str, number: int) -> PullRow | None:
    """Return the pull request's record."""
    return await tx.fetch_first(PULL_BY_NUMBER, {"of_repo": repo.lower(), "of_number": number})


async def read_open_pulls(tx: Transaction) -> list[tuple[str, int]]:
    """Return the open pull requests we know of, in any repository, the newest first."""
    table = records["pull_request"]
    query = sa.select(table.c.repo, table.c.number).where(table.c.state == "open")
    return [(repo, number) for repo, number in await tx.run(query.order_by(table.c.number.desc()))]


async def read_heads(tx: Transaction, pull: PullRow) -> dict[str, int]:
    """Return when each head of a pull request was last reported, newest first (epoch milliseconds).

    Heads are found by the repository's id, so those of a renamed repository count too.
    """
    of_pull = {"of_repository": pull["repository_id"], "of_number": pull["number"]}
    return {head_sha: updated_at or 0 for head_sha, updated_at in await tx.run(HEADS_OF_PULL, of_pull)}


async def read_label_events(tx: Transaction, repo: str, number: int) -> list[LabelEventRow]:
    """Return the newest label events of a pull request; GitHub's times are in seconds, so several may share one."""
    return await tx.rows_as(LabelEventRow, LABEL_EVENTS, {"of_repo": repo.lower(), "of_number": number})


async def read_deciding_pulls(tx: Transaction, repo: str, heads: Collection[str]) -> dict[str, list[int]]:
    """Return, by commit, the open pull requests with that head that decide its gate: a commit has one gate.

    The first is the one that had the commit first, not the one with the lowest number: authors may push another's
    commit to an old pull request of theirs. The others have the same author, and may target other base branches.
    """
    by_head: dict[str, list[tuple[int, int | None]]] = {}
    for head_sha, number, user_id in await tx.run(
        DECIDING_PULLS, {"heads": sorted(heads), "of_repo": repo.lower()}
    ):
        by_head.setdefault(head_sha, []).append((number, user_id))
    return {
        sha: [number for number, author in pulls if author == pulls[0][1]] for sha, pulls in by_head.items()
    }


async def _merge(tx: Transaction, name: str, pending: dict[Key, list[Record]]) -> None:
    """Merge records into one table; rows inserted by another process meanwhile are read and merged again."""
    table = metadata.tables[name]
    keys = list(table.primary_key.columns)
    if name == SHARED and not (tx.sqlite or tx.replaying):
        pending = await _changing(tx, table, pending)
    while pending:
        present = await _present(tx, table, sorted(pending))
        inserts: list[Values] = []
        updates: list[Values] = []
        same, retry = [], {}
        for key, versions in sorted(pending.items(), key=itemgetter(0)):
            row = present.get(key)
            merged = _merged(row, versions)
            if row is None:
                assert merged  # the first version of several is a whole row
                inserts.append(merged)
            elif merged and merged is not row:
                updates.append(merged)
            elif tx.replaying:  # what is derived from records is made again
                same.append(row)
        if inserts:
            if tx.sqlite:  # the only writer: no other process can insert
                await tx.upsert(table, inserts)
            else:
                done = await tx.upsert(table, inserts, returning=[column.name for column in keys])
                written = {tuple(row) for row in done}
                retry = {key: versions for key, versions in pending.items()
                         if key not in present and key not in written}  # fmt: skip
        if updates:
            named = [{**row, **{f"key_{c.name}": row[c.name] for c in keys}} for row in updates]
            await tx.run(_update(table), named)
        told = updates if tx.replaying else _telling_more(present, keys, updates)
        noted = [*inserts, *told, *same]
        tx.note_changed(name, (row for row in noted if row and _key(keys, row) not in retry))
        pending = retry


async def _changing(
    tx: Transaction, table: sa.Table, pending: dict[Key, list[Record]]
) -> dict[Key, list[Record]]:
    """Return the records that change a row, or make one.

    Only those are to be locked: at a row that all deliveries of a repository share, workers would wait for each other.
    What does not change a row does not change a later version of it either.
    """
    present = await _present(tx, table, sorted(pending), locked=False)
    return {
        key: versions
        for key, versions in pending.items()
        if (row := present.get(key)) is None or _merged(row, versions) is not row
    }


def _merged(row: Values | None, versions: Sequence[Record]) -> Values | None:
    """Return a row as these versions make it: the same object where none of them changes it."""
    for version in versions:
        row = merge(row, version) or row
    return row


def _telling_more(
    present: dict[Key, Values], columns: Sequence[sa.Column[Any]], updates: Sequence[Values]
) -> list[Values]:
    """Return the updates that change more than `merge_state`, where the same content may come from another delivery."""
    return [
        row
        for row in updates
        if row | {"merge_state": None} != present[_key(columns, row)] | {"merge_state": None}
    ]


def _key(columns: Sequence[sa.Column[Any]], row: Values) -> Key:
    return tuple(row[column.name] for column in columns)


async def _present(
    tx: Transaction, table: sa.Table, keys: Sequence[Key], *, locked: bool = True
) -> dict[Key, Values]:
    """Return the rows that are there; `locked` does nothing on SQLite, which has one writer."""
    columns = list(table.primary_key.columns)
    query = _select(table, sqlite=tx.sqlite, locked=locked and not tx.sqlite)
    present = {}
    for start in range(0, len(keys), KEYS_PER_QUERY):
        wanted = tx.keys(keys[start : start + KEYS_PER_QUERY])
        for row in await tx.rows(query, {"wanted": wanted}):
            present[_key(columns, row)] = row
    return present


@functools.cache
def _select(table: sa.Table, *, sqlite: bool, locked: bool) -> Statement:
    """Return the query for rows by their keys, cached: building it takes longer than running it."""
    columns = list(table.primary_key.columns)
    query = sa.select(table).where(among_given(columns, "wanted", sqlite=sqlite)).order_by(*columns)
    return Statement(query.with_for_update() if locked else query)


@functools.cache
def _update(table: sa.Table) -> Statement:
    """Return the statement that writes the other columns of a row found by its key."""
    keys = list(table.primary_key.columns)
    matches = [column == sa.bindparam(f"key_{column.name}") for column in keys]
    return Statement(sa.update(table).where(*matches).values({
        column.name: sa.bindparam(column.name) for column in table.columns if column not in set(keys)
    }))  # fmt: skip


def _text_size(kind: RecordType[Any]) -> sa.ColumnElement[int]:
    """Return how many characters the texts of a record have."""
    table = metadata.tables[kind.table]
    long = [
        table.c[column.name] for column in kind.columns if column.kind in {Kind.TEXT, Kind.TEXTS, Kind.JSON}
    ]
    lengths = [sa.func.coalesce(sa.func.length(sa.cast(text, sa.Text)), 0) for text in long]
    return functools.reduce(operator.add, lengths)


async def _records_query(tx: Transaction, kind: RecordType[Any], repo: str, hidden: Hidden) -> sa.Select[Any]:
    """Return the query for a repository's records, without those that must not be shown."""
    table = metadata.tables[kind.table]
    name, known = sa.func.lower(table.c.repo), await repositories.read_names_of_same(tx, repo)
    query = sa.select(table).where(name.in_(sorted(known)))
    if hidden.ids or hidden.names:
        query = query.where(
            table.c.repository_id.not_in(sorted(hidden.ids)), name.not_in(sorted(hidden.names))
        )
    return query


def _order(kind: RecordType[Any]) -> list[sa.Column[Any]]:
    return [metadata.tables[kind.table].c[name] for name in sort_columns(kind)]
