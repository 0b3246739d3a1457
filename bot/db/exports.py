"""Exports: which rows of a capability sinks may have copies of, declared by the capability that owns them.

`Feature.exports` names a tuple of them. `bot.sinks` marks what changes, reads what is true now of what was marked, and
hands it to the driver of each sink, which writes it in the shape that the export has for the sink's layout.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa

from bot.db.statements import Statement
from bot.db.transaction import among_given

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

Key = tuple[Any, ...]  # values of an export's key columns, in their order
Row = Mapping[str, Any]
ROWS = "bot.db.exports:read_rows"
KEYS_PER_QUERY = 200  # of statements whose keys are bound parameters, which databases limit
KEYS_AT_ONCE = 500  # of those whose keys are one parameter: rows of some milliseconds
_KEY, _TEXT = msgspec.json.Decoder(tuple[Any, ...]), msgspec.json.Encoder()


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How an export is written in one layout. All parts are named as module:attribute and loaded on first use."""

    make: str  # what the layout's driver makes of a row: `bot.sinks.driver` says what that is in each
    # async (tx, export, keys) -> rows by key, in one snapshot; a key without a row is gone
    read: str = ROWS
    load: str = (
        ""  # async (context, rows) -> rows: adds what is no row, such as blobs; outside any transaction
    )
    most: int = 5_000  # rows read and sent at once, where they are large


@dataclass(frozen=True, kw_only=True)
class Export:
    """Rows that sinks may have copies of."""

    name: str  # as in `what` of a sink, in tasks, metrics and pages
    table: sa.Table  # its changes are marked: those who write it call `Transaction.note_changed`
    day: (
        str | sa.ColumnElement[Any]
    )  # the time by which rows are counted and filled in later, epoch milliseconds
    key: tuple[str, ...] = ()  # columns that name what is sent as one; empty: the primary key
    group: str = ""  # a name that stands for several exports in `what`
    # columns with the ids or full names of the repositories a row is about: one that is private hides it
    # the first that is an id also gives a row its `repo`, the full name, where it has none
    repositories: tuple[str, ...] = ("repository_id",)
    condition: sa.ColumnElement[bool] | None = None  # the rows of the table that are exported at all
    # whether nothing says if what it is about is public: only sinks with `private` get it
    internal: bool = False
    deleted: str = ""  # a column that is not null where the row says that something was deleted
    shapes: Mapping[str, Shape] = field(default_factory=dict)  # by layout: see `bot.sinks.driver`

    @functools.cached_property
    def key_names(self) -> tuple[str, ...]:
        """The names of the columns of its key."""
        return self.key or tuple(column.name for column in self.table.primary_key.columns)

    @functools.cached_property
    def key_columns(self) -> tuple[sa.Column[Any], ...]:
        """The columns of its key."""
        return tuple(self.table.c[name] for name in self.key_names)

    @property
    def day_column(self) -> sa.ColumnElement[Any]:
        """The column with the time of a row, or what computes it."""
        return self.table.c[self.day] if isinstance(self.day, str) else self.day

    def key_of(self, row: Row) -> Key:
        """Return the key of a row."""
        return tuple([row[name] for name in self.key_names])


@dataclass(frozen=True, kw_only=True)
class Addition:
    """What a capability adds to rows of another one's export: `Feature.additions` names a tuple of them."""

    export: str  # by its name
    layouts: frozenset[str]  # in which it is added
    table: sa.Table  # its changes mark the rows concerned, too
    key: tuple[str, ...]  # its columns with the values of the export's key, in that order
    read: str  # module:attribute: async (tx, keys) -> further members of rows, by key, in the same snapshot


def encode_key(key: Sequence[Any]) -> str:
    """Return a key as a text that is stored."""
    return _TEXT.encode(key).decode()


def decode_key(text: str) -> Key:
    """Return the key in such a text."""
    return _KEY.decode(text)


async def read_rows(tx: Transaction, export: Export, keys: Sequence[Key]) -> dict[Key, Row]:
    """Return the rows of some keys as they are now, where the key is that of one row."""
    return await read_columns(tx, export, keys, tuple(export.table.c))


async def read_columns(
    tx: Transaction, export: Export, keys: Sequence[Key], columns: tuple[sa.ColumnElement[Any], ...]
) -> dict[Key, Row]:
    """Return some columns of such rows, those of the key among them."""
    found: dict[Key, Row] = {}
    query = _rows_of_keys(columns, export.key_columns, export.condition, sqlite=tx.sqlite)
    for start in range(0, len(keys), KEYS_AT_ONCE):
        for row in await tx.rows(query, {"keys": tx.keys(keys[start : start + KEYS_AT_ONCE])}):
            found[export.key_of(row)] = row
    return found


@functools.cache
def _rows_of_keys(
    columns: tuple[sa.ColumnElement[Any], ...],
    key: tuple[sa.Column[Any], ...],
    condition: sa.ColumnElement[bool] | None,
    *,
    sqlite: bool,
) -> Statement:
    query = sa.select(*columns).where(among_given(key, "keys", sqlite=sqlite))
    return Statement(query if condition is None else query.where(condition))
