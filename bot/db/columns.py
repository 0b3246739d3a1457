"""The schema's metadata, and column types that mean the same on both databases."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

metadata = sa.MetaData(
    naming_convention={"ix": "ix_%(table_name)s_%(column_0_N_name)s", "pk": "pk_%(table_name)s"}
)

Big = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite's rowid needs INTEGER
Json = sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")
Float = sa.Float(53)


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
    """Return the condition that a text begins with another one, as an index serves it.

    PostgreSQL's index has to be one of bytes, `postgresql_ops={"name": "text_pattern_ops"}`, whatever its collation.
    """
    end = start + "\U0010ffff"  # no character comes after it
    if sqlite:
        return sa.and_(column >= start, column < end)
    return sa.and_(column.op("~>=~", is_comparison=True)(start), column.op("~<~", is_comparison=True)(end))


def unindexed(column: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    """Return a text column in a form that no index serves, for conditions that leave most rows.

    SQLite, without statistics, takes the index of what equals one value rather than that of what is in a list.
    """
    return sa.func.coalesce(column, "")
