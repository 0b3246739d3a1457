"""Writing the records gathered by a transaction, each merged with the row that is there."""

from __future__ import annotations

import functools
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.db.columns import metadata
from bot.db.statements import Statement
from bot.db.transaction import Slot, among_given
from bot.ingest import watched
from bot.ingest.records import Record, Values, merge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.transaction import Changed, Transaction

KEYS_PER_QUERY = 200  # SQLite limits expression depth and bound parameters
SHARED = "repository"  # the table whose row most deliveries repeat unchanged
Key = tuple[Any, ...]
RECORDS: Slot[list[Record]] = Slot("records", list)


def record(tx: Transaction, one: Record) -> None:
    """Have a record merged into its table before the transaction ends."""
    tx.slot(RECORDS).append(one)


async def write(tx: Transaction, _changed: Changed) -> None:
    """Merge every record into its table: the first hook before a commit, so that later ones see the merged rows."""
    gathered = tx.empty(RECORDS)
    by_table: dict[str, dict[Key, list[Record]]] = {}
    for record in gathered:
        by_table.setdefault(record.type.table, {}).setdefault(record.key, []).append(record)
    # always in one order, so that two transactions never wait for each other
    for table in sorted(by_table):
        await _merge(tx, table, by_table[table])
    await watched.note(tx, gathered)


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
    """Return the updates of more than `merge_state`: another delivery that shows the same may only come to be named."""
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
    found = {}
    for start in range(0, len(keys), KEYS_PER_QUERY):
        wanted = tx.keys(keys[start : start + KEYS_PER_QUERY])
        for row in await tx.rows(query, {"wanted": wanted}):
            found[_key(columns, row)] = row
    return found


@functools.cache
def _select(table: sa.Table, *, sqlite: bool, locked: bool) -> Statement:
    """Return the query for rows by their keys; putting one together takes longer than running it."""
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
