"""Exports of rows as they are: an object each below their repository, and a table of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.stored_objects import StoredObject, json_line, object_key, repo_key
from bot.db.exports import Export, Shape

if TYPE_CHECKING:
    import sqlalchemy as sa

    from bot.db.exports import Row

SHAPES = {
    "upstream": Shape(make="bot.ci.extras.exported_rows:copy_row", most=500),
    "clickhouse.ootbot": Shape(make="bot.db.table_copies:copy_table"),
}


def rows_export(name: str, table: sa.Table, *, day: str = "at", group: str = "") -> Export:
    """Return the export of a table whose key begins with the repository's id."""
    return Export(name=name, group=group, table=table, day=day, shapes=SHAPES)


def copy_row(export: Export, row: Row) -> list[StoredObject]:
    """Return a row as an object below its repository."""
    place = object_key(*export.key_of(row)[1:])
    key = "/".join((export.name, repo_key(row["repo"]), place))
    return [StoredObject(key=key, content=lambda: (json_line(dict(row)),))]
