"""Our own tables in ClickHouse: made from row classes, so that a column is declared once."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, get_args, get_origin

import sqlalchemy as sa

from bot.core.column_tables import ColumnTable, TableCopy
from bot.db.exports import Shape, read_columns
from bot.db.rows import Field

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.db.exports import Export, Key, Row
    from bot.db.transaction import Transaction

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
STEADY = (
    "received_at"  # of records and deliveries: it never changes, as what replaces a row has to lie beside it
)
COPIED = Shape(make="bot.db.table_copies:copy_table", read="bot.db.table_copies:read_copied")


def copy_table(export: Export) -> TableCopy:
    """Return the copy of an export's own table, column by column."""
    return copy_of(export, column_types(export.table), steady="merge_state" in export.table.c)


async def read_copied(tx: Transaction, export: Export, keys: Sequence[Key]) -> dict[Key, Row]:
    """Return rows with what such a copy has of them, and what says whether they are sent at all."""
    needed = frozenset({*export.key_names, *export.repositories, export.deleted})
    return await read_columns(tx, export, keys, _read_of(export.table, needed, sqlite=tx.sqlite))


@functools.cache
def _read_of(table: sa.Table, needed: frozenset[str], *, sqlite: bool) -> tuple[sa.ColumnElement[Any], ...]:
    """Return the columns that are read; what is stored as JSON and sent as a text is left as it is stored."""
    types = column_types(table)
    return tuple(
        sa.type_coerce(column, sa.Text()).label(column.name)
        if sqlite and isinstance(column.type, sa.JSON) and not types.get(column.name, LIST).startswith(LIST)
        else column
        for column in table.c
        if column.name in needed or column.name in types
    )


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


def _time_of(export: Export, columns: Mapping[str, str]) -> str:
    day = export.day if isinstance(export.day, str) else ""
    return day if columns.get(day, "").startswith("DateTime") else ""


def column_types(
    *tables: sa.FromClause, without: Iterable[str] = (), first: Iterable[str] = ()
) -> dict[str, str]:
    """Return the types of the columns of tables, and of the repository's name, where no table has it."""
    unwanted = LEFT_OUT | set(without)
    found: dict[str, str] = {}
    for column in [column for one in tables for column in one.columns]:
        declared = column.info.get("field")
        if isinstance(declared, Field) and column.name not in unwanted and declared.type is not bytes:
            found[column.name] = _type(declared)
    named = {name: found[name] for name in first}
    repo = {} if {"repo", "downstream_repo"} & found.keys() else {"repo": _few(TEXT)}
    return {**named, **repo, **found}


def _type(declared: Field) -> str:
    if get_origin(declared.type) is list and get_args(declared.type) in {(str,), (int,), (float,)}:
        (inner,) = get_args(declared.type)
        return f"{LIST}{NUMBERS.get(inner, TEXT)})"
    kind = TIME if declared.is_time else NUMBERS.get(declared.type, TEXT)  # anything else is JSON in a text
    kind = f"Nullable({kind})" if declared.nullable else kind
    return _few(kind) if declared.name in FEW and TEXT in kind else kind


def _few(kind: str) -> str:
    return f"LowCardinality({kind})"
