"""Exports: which rows of a capability sinks may have copies of, declared by the capability that owns them.

Copies are rows of a column store (ClickHouse), objects of an object store, or items of DynamoDB.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args, get_origin
from urllib.parse import quote

import msgspec
import sqlalchemy as sa

from bot.db.rows import Field
from bot.db.statements import Statement
from bot.db.transaction import among_given

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bot.db.transaction import Transaction

VERSION_COLUMN = {"_version": "UInt64", "_deleted": "UInt8"}
DIGEST_DIGITS = 16  # of the digest that ends a part that was cut
PART_MOST = 200  # characters of one part of a key, quoted: a file's name may have 255
JSON_TYPE, TEXT_TYPE = "application/json", "text/plain"
RowKey = tuple[Any, ...]  # values of an export's key columns, in their order
ExportedRow = Mapping[str, Any]
ROWS = "bot.db.exports:read_rows"
KEYS_PER_QUERY = 200  # of statements whose keys are bound parameters, which databases limit
KEYS_AT_ONCE = 500  # of those whose keys are one parameter: rows of some milliseconds
_KEY, _TEXT = msgspec.json.Decoder(tuple[Any, ...]), msgspec.json.Encoder()
TIME, TEXT, LIST = "DateTime64(3, 'UTC')", "String", "Array("
NUMBERS = {int: "Int64", float: "Float64", bool: "Bool"}
# texts of which there are few: the column store numbers them
FEW = frozenset(
    {
        "backend", "base_name", "branch", "conclusion", "config", "device", "downstream_repo", "event", "event_type",
        "failure_kind", "file", "gpu_type", "job_name", "kind", "language", "provider", "repo", "rule", "runner_label",
        "state", "status", "suite", "upstream_repo", "workflow", "workflow_name",
    }
)  # fmt: skip
LEFT_OUT = frozenset(
    {"merge_state", "source", "blob", "histograms", "totals", "deleted_at"}
)  # of no use elsewhere
# of records and deliveries: it never changes, as what replaces a row has to lie beside it
STEADY = "received_at"


@dataclass(frozen=True, kw_only=True)
class ColumnTable:
    """A table of ClickHouse."""

    name: str  # `database.table`; without a database it is in that of the sink
    columns: Mapping[str, str]  # types by name
    order: tuple[str, ...]  # ORDER BY: rows that are equal in these replace one another
    # rows have a version, and say whether they were deleted: the newest version counts, whatever came last
    versioned: bool = False
    replaces: bool = True  # without versions: whether a later row replaces an equal one
    # further columns that the server computes, as declared, such as `String ALIAS lower(name)`: queries use them
    computed: Mapping[str, str] = field(default_factory=dict)
    # views of some columns beside it, which queries ask in its place: columns by name of the view
    views: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    open: bool = False  # further columns that the table has and the rows, too, are written as well
    day: str = ""  # a column with a time that never changes: the table is split by its month
    time: str = ""  # a column with a time by which rows grow old

    @property
    def all_columns(self) -> Mapping[str, str]:
        """The types of all columns that are written."""
        return {**self.columns, **(VERSION_COLUMN if self.versioned else {})}


@dataclass(frozen=True, kw_only=True)
class TableCopy:
    """How an export is written to a table: what `Shape.make` returns of the export in layouts of ClickHouse."""

    table: ColumnTable
    # an export's row -> rows of the table, values by column: GitHub's, or those of our columns
    rows: Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]]
    key: tuple[str, ...]  # columns that all rows of one key of the export have in common, and no others
    # a key and its row, where there is one -> the values of these columns; None: they are not known
    key_values: Callable[[tuple[Any, ...], Mapping[str, Any] | None], Sequence[Any] | None]
    several: bool = False  # a key has several rows, and each time they may be others
    shared: bool = False  # rows of other keys of the export may have the same values in these columns


@dataclass(frozen=True, kw_only=True)
class StoredItem:
    """An item that is to have some attributes, or is to be deleted. Others that it has stay as they are."""

    table: str  # without the prefix of the sink
    key: str  # `dynamoKey`
    attributes: Mapping[str, Any]  # as JSON has them; null is not written
    # the attribute with our version of these: exports that write to the same item have one each, so that none of them
    # takes the other for newer
    version: str = "_version"


@dataclass(frozen=True, kw_only=True)
class ListedObject:
    """A line about an object in a manifest, for those who read many of them."""

    manifest: str  # the folder of its parts; each batch that is written adds one
    line: bytes


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """An object that is to be there, or to be deleted."""

    key: str  # see `object_key`
    content: Callable[[], Iterable[bytes]]  # called where it is written; pieces, not compressed
    content_type: str = JSON_TYPE
    metadata: Mapping[str, str] = field(default_factory=dict)  # not kept in a directory
    immutable: bool = False  # once it is there, its content never changes
    listed: ListedObject | None = None


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How an export is written in one layout. All parts are named as module:attribute and loaded on first use."""

    make: str  # what the layout's driver makes of a row: `bot.sinks.driver` says what that is in each
    # async (tx, export, keys) -> rows by key, in one snapshot; a key without a row is gone
    read: str = ROWS
    # async (context, rows) -> rows: adds what is no row, such as blobs; outside any transaction
    load: str = ""
    most: int = 5_000  # rows read and sent at once, where they are large


@dataclass(frozen=True, kw_only=True)
class Addition:
    """What a capability adds to rows of another one's export: `Feature.additions` names a tuple of them."""

    export: str  # by its name
    layouts: frozenset[str]  # in which it is added
    table: sa.Table  # its changes mark the rows concerned, too
    key: tuple[str, ...]  # its columns with the values of the export's key, in that order
    read: str  # module:attribute: async (tx, keys) -> further members of rows, by key, in the same snapshot


COPIED = Shape(make="bot.db.exports:copy_table", read="bot.db.exports:read_copied")
ROW_SHAPES = {  # of an export whose rows leave as they are
    "upstream": Shape(make="bot.db.exports:copy_row", most=500),
    "clickhouse.ootbot": COPIED,
}


def object_key(*parts: object) -> str:
    """Return a key of these parts, with special characters quoted, so that no part leads out of its place."""
    return "/".join(_quoted(str(part)) for part in parts)


def repo_key(repo: str) -> str:
    """Return a repository's full name as two parts of a key."""
    owner, _, name = repo.partition("/")
    return object_key(owner, name)


def json_line(value: Any) -> bytes:
    """Return a value as a line of JSON; numbers that JSON lacks become texts, as upstream's readers expect."""
    return msgspec.json.encode(_with_finite_numbers(value)) + b"\n"


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

    def key_of(self, row: ExportedRow) -> RowKey:
        """Return the key of a row."""
        return tuple([row[name] for name in self.key_names])


def encode_key(key: Sequence[Any]) -> str:
    """Return a key as the text that is stored."""
    return _TEXT.encode(key).decode()


def decode_key(text: str) -> RowKey:
    """Return the key that a stored text holds."""
    return _KEY.decode(text)


async def read_rows(tx: Transaction, export: Export, keys: Sequence[RowKey]) -> dict[RowKey, ExportedRow]:
    """Return the rows of some keys as they are now, where the key is that of one row."""
    return await read_columns(tx, export, keys, tuple(export.table.c))


async def read_columns(
    tx: Transaction, export: Export, keys: Sequence[RowKey], columns: tuple[sa.ColumnElement[Any], ...]
) -> dict[RowKey, ExportedRow]:
    """Return some columns of the rows of these keys, the key's included."""
    rows_by_key: dict[RowKey, ExportedRow] = {}
    query = _rows_of_keys(columns, export.key_columns, export.condition, sqlite=tx.sqlite)
    for start in range(0, len(keys), KEYS_AT_ONCE):
        for row in await tx.rows(query, {"keys": tx.keys(keys[start : start + KEYS_AT_ONCE])}):
            rows_by_key[export.key_of(row)] = row
    return rows_by_key


def copy_table(export: Export) -> TableCopy:
    """Return the copy of an export's own table, column by column."""
    return copy_of(export, column_types(export.table), steady="merge_state" in export.table.c)


async def read_copied(tx: Transaction, export: Export, keys: Sequence[RowKey]) -> dict[RowKey, ExportedRow]:
    """Return rows with the columns that such a copy has, and those that decide whether they are sent."""
    needed = frozenset({*export.key_names, *export.repositories, export.deleted})
    return await read_columns(tx, export, keys, _read_of(export.table, needed, sqlite=tx.sqlite))


def copy_of(
    export: Export,
    columns: Mapping[str, str],
    *,
    order: tuple[str, ...] = (),
    name: str = "",
    rows: Any = lambda row: (row,),
    several: bool = False,
    steady: bool = False,
) -> TableCopy:
    """Return the copy of an export in a table of ours with these columns; `order` follows its key."""
    key = tuple(column.name for column in export.key_columns)
    return TableCopy(
        table=ColumnTable(
            name=name or export.table.name,
            columns=columns,
            order=(*key, *order),
            versioned=True,
            day=STEADY if steady else "",
            time=_time_of(export, columns),
        ),
        rows=rows,
        key=key,
        key_values=lambda values, _row: values,
        several=several,
    )


def column_types(
    *tables: sa.FromClause, without: Iterable[str] = (), first: Iterable[str] = ()
) -> dict[str, str]:
    """Return the types of the tables' columns, and that of the repository's name where no table has it."""
    unwanted = LEFT_OUT | set(without)
    types: dict[str, str] = {}
    for column in [column for table in tables for column in table.columns]:
        declared = column.info.get("field")
        if isinstance(declared, Field) and column.name not in unwanted and declared.type is not bytes:
            types[column.name] = _type(declared)
    named = {name: types[name] for name in first}
    repo = {} if {"repo", "downstream_repo"} & types.keys() else {"repo": _few(TEXT)}
    return {**named, **repo, **types}


def copy_row(export: Export, row: ExportedRow) -> list[StoredObject]:
    """Return a row as an object."""
    names = [column.name for column in export.key_columns if column.name != "repository_id"]
    key = "/".join((export.name, repo_key(row["repo"]), object_key(*(row[name] for name in names))))
    return [StoredObject(key=key, content=lambda: (json_line(dict(row)),))]


def _quoted(part: str) -> str:
    quoted = quote(part, safe="")
    if len(quoted) > PART_MOST:
        digest = hashlib.sha256(part.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_DIGITS]
        return f"{quoted[: PART_MOST - DIGEST_DIGITS - 1]}~{digest}"
    return quoted.replace(".", "%2E") or "%00" if not quoted.strip(".") else quoted


def _with_finite_numbers(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _with_finite_numbers(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_with_finite_numbers(inner) for inner in value]
    return value


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


@functools.cache
def _read_of(table: sa.Table, needed: frozenset[str], *, sqlite: bool) -> tuple[sa.ColumnElement[Any], ...]:
    """Return the columns to read; JSON that is sent as text stays as it is stored."""
    types = column_types(table)
    return tuple(
        sa.type_coerce(column, sa.Text()).label(column.name)
        if sqlite and isinstance(column.type, sa.JSON) and not types.get(column.name, LIST).startswith(LIST)
        else column
        for column in table.c
        if column.name in needed or column.name in types
    )


def _time_of(export: Export, columns: Mapping[str, str]) -> str:
    day = export.day if isinstance(export.day, str) else ""
    return day if columns.get(day, "").startswith("DateTime") else ""


def _type(declared: Field) -> str:
    if get_origin(declared.type) is list and get_args(declared.type) in {(str,), (int,), (float,)}:
        (inner,) = get_args(declared.type)
        return f"{LIST}{NUMBERS.get(inner, TEXT)})"
    kind = TIME if declared.is_time else NUMBERS.get(declared.type, TEXT)  # anything else is JSON in a text
    kind = f"Nullable({kind})" if declared.nullable else kind
    return _few(kind) if declared.name in FEW and TEXT in kind else kind


def _few(kind: str) -> str:
    return f"LowCardinality({kind})"
