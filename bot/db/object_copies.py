"""Rows as objects: one below its repository, named by the rest of its key, with its columns as a line of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.stored_objects import StoredObject, json_line, object_key, repo_key
from bot.db.exports import Shape

if TYPE_CHECKING:
    from bot.db.exports import Export, Row


def copy_row(export: Export, row: Row) -> list[StoredObject]:
    """Return a row as an object."""
    names = [column.name for column in export.key_columns if column.name != "repository_id"]
    key = "/".join((export.name, repo_key(row["repo"]), object_key(*(row[name] for name in names))))
    return [StoredObject(key=key, content=lambda: (json_line(dict(row)),))]


ROW_SHAPES = {  # of an export whose rows leave as they are
    "upstream": Shape(make="bot.db.object_copies:copy_row", most=500),
    "clickhouse.ootbot": Shape(make="bot.db.table_copies:copy_table"),
}
