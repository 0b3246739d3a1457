"""Row classes: TypedDicts that declare the columns of a table, once, and type the rows that are read from it.

Column types mean the same on both databases.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import Enum
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NotRequired,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

metadata = sa.MetaData(
    naming_convention={"ix": "ix_%(table_name)s_%(column_0_N_name)s", "pk": "pk_%(table_name)s"}
)

BigType = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite's rowid needs INTEGER
JsonType = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
FloatType = sa.Float(53)
T = TypeVar("T")
Text = Annotated[str, sa.Text()]
Bool = Annotated[bool, sa.Boolean()]
Int = Annotated[int, sa.Integer()]
Big = Annotated[int, BigType]
Float = Annotated[float, FloatType]
Bytes = Annotated[bytes, sa.LargeBinary()]
Json = Annotated[T, JsonType]

TypedSelect = sa.Select[T]  # a query whose rows are those of a row class: see `select`


@dataclass(frozen=True)
class Default:
    """The value, as SQL, of rows that were written before the column existed."""

    sql: str | sa.ColumnElement[Any]


class Unit(Enum):
    """What the numbers of a column count."""

    EPOCH_MILLISECONDS = "ms"


Millis = Annotated[int, BigType, Unit.EPOCH_MILLISECONDS]


@dataclass(frozen=True, kw_only=True)
class Field:
    """One column as a row class declares it."""

    name: str
    type: Any  # of its values in Python, without None
    nullable: bool
    notes: tuple[Any, ...]  # what else the annotation says

    @property
    def is_time(self) -> bool:
        """Whether it holds a time."""
        return Unit.EPOCH_MILLISECONDS in self.notes

    def column(self) -> sa.Column[Any]:
        """Return the column of a table."""
        kind = next((note for note in self.notes if isinstance(note, sa.types.TypeEngine)), None)
        if kind is None:
            raise TypeError(f"{self.name}: {self.type} is no column's type; bot.db.rows has those")
        written = next((note.sql for note in self.notes if isinstance(note, Default)), None)
        default = sa.text(f"'{written}'") if isinstance(written, str) else written
        declared = {"field": self}
        return sa.Column(self.name, kind, nullable=self.nullable, server_default=default, info=declared)


def column(name: str, kind: Any, **options: Any) -> sa.Column[Any]:
    """Return a nullable column."""
    return sa.Column(name, kind, nullable=options.pop("nullable", True), **options)


def must(name: str, kind: Any, **options: Any) -> sa.Column[Any]:
    """Return a column that is never null."""
    return sa.Column(name, kind, nullable=False, **options)


def partial_index(
    name: str, *columns: sa.ColumnElement[Any], where: sa.ColumnElement[bool], unique: bool = False
) -> None:
    """Add an index of only the rows for which `where` holds."""
    sa.Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


def begins(column: sa.ColumnElement[str], start: str, *, sqlite: bool) -> sa.ColumnElement[bool]:
    """Return the condition that a text begins with another one, in a form that an index serves.

    PostgreSQL needs an index of bytes, `postgresql_ops={"name": "text_pattern_ops"}`, whatever its collation.
    """
    end = start + "\U0010ffff"  # no character comes after it
    if sqlite:
        return sa.and_(column >= start, column < end)
    return sa.and_(column.op("~>=~", is_comparison=True)(start), column.op("~<~", is_comparison=True)(end))


def unindexed(column: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    """Return a text column in a form that no index serves, for conditions that most rows meet.

    Without statistics SQLite prefers the index of a column compared with one value to that of one compared with a list.
    """
    return sa.func.coalesce(column, "")


def fields(kind: type) -> Mapping[str, Field]:
    """Return the columns of a row class by name, in order."""
    return _fields(kind)


def table(name: str, *parts: type | sa.schema.SchemaItem, key: Sequence[str]) -> sa.Table:
    """Return a table with the columns of row classes, in order, and with constraints and indexes."""
    items: list[sa.schema.SchemaItem] = []
    for part in parts:
        items += [field.column() for field in fields(part).values()] if isinstance(part, type) else [part]
    rows = tuple(part for part in parts if isinstance(part, type))
    return sa.Table(name, metadata, *items, sa.PrimaryKeyConstraint(*key), info={"rows": rows})


def select(kind: type[T], *tables: sa.FromClause, **computed: sa.ColumnElement[Any]) -> TypedSelect[T]:
    """Return the query for rows of a row class: each column is that of the first table that has it, or computed.

    Raises TypeError where a column is missing, or is declared with another type than in its table.
    """
    if not computed:
        plain: type = kind
        return cast("TypedSelect[T]", _select(plain, tables))
    if unknown := computed.keys() - fields(kind).keys():
        raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    chosen = [
        computed[name].label(name) if name in computed else _column(kind, field, tables)
        for name, field in fields(kind).items()
    ]
    return cast("TypedSelect[T]", sa.select(*chosen))


def as_rows(kind: type[T], rows: list[dict[str, Any]]) -> list[T]:
    """Check rows of a hand-written statement against a row class and return them; raises TypeError if they differ."""
    if rows:
        plain: type = kind
        _require_columns(plain, tuple(rows[0]))
    return cast("list[T]", rows)


@functools.cache
def _fields(kind: type) -> Mapping[str, Field]:
    return {name: _field(name, hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


def _field(name: str, hint: Any) -> Field:
    notes: tuple[Any, ...] = ()
    nullable = False
    while True:  # Annotated, `| None` and NotRequired, in any order
        if get_origin(hint) is Annotated:
            notes += hint.__metadata__
            hint = hint.__origin__
        elif get_origin(hint) is NotRequired:
            (hint,) = get_args(hint)
        elif NoneType in get_args(hint):
            nullable = True
            hint = functools.reduce(lambda left, right: left | right, _without_none(hint))
        else:
            return Field(name=name, type=hint, nullable=nullable, notes=notes)


def _without_none(hint: Any) -> list[Any]:
    return [part for part in get_args(hint) if part is not NoneType]


@functools.lru_cache(maxsize=1_000)
def _select(kind: type, tables: tuple[sa.FromClause, ...]) -> sa.Select[*tuple[Any, ...]]:
    """Return the query for rows without computed columns; it is built once."""
    return sa.select(*(_column(kind, field, tables) for field in fields(kind).values()))


def _column(kind: type, field: Field, tables: Sequence[sa.FromClause]) -> sa.ColumnElement[Any]:
    column = next((source.c[field.name] for source in tables if field.name in source.c), None)
    if column is None:
        raise TypeError(f"{kind.__name__}.{field.name} is in none of {', '.join(map(str, tables))}")
    declared = [base.info.get("field", field) for base in column.base_columns if isinstance(base, sa.Column)]
    for declared_column in declared:
        if declared_column.type != field.type:
            raise TypeError(
                f"{kind.__name__}.{field.name} is {field.type}, its column holds {declared_column.type}"
            )
    return cast("sa.ColumnElement[Any]", column)


@functools.lru_cache(maxsize=2_000)
def _require_columns(kind: type, names: tuple[str, ...]) -> None:
    """Raise TypeError unless these columns include all of a TypedDict's."""
    declared = kind.__annotations__.keys()
    optional: frozenset[str] = getattr(kind, "__optional_keys__", frozenset())
    if missing := declared - optional - set(names):
        raise TypeError(f"rows that were read have no {', '.join(sorted(missing))}: {kind.__name__} has")
