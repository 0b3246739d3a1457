"""What sinks may have copies of: searches for the commits that broke something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.stored_objects import StoredObject, json_line, object_key, repo_key
from bot.db.exports import Export, Shape
from bot.db.table_copies import COPIED
from bot.oot.culprits.tables import bisect

if TYPE_CHECKING:
    from bot.db.exports import Row


def copy_search(export: Export, row: Row) -> list[StoredObject]:
    """Return a search as an object below the repository that is searched."""
    key = "/".join((export.name, repo_key(row["upstream_repo"]), object_key(row["id"])))
    return [StoredObject(key=key, content=lambda: (json_line(dict(row)),))]


EXPORTS = (
    Export(
        name="bisects",
        table=bisect,
        day="created_at",
        repositories=("repository_id", "upstream_repo", "backend"),
        shapes={
            "upstream": Shape(make="bot.oot.culprits.exports:copy_search", most=500),
            "clickhouse.ootbot": COPIED,
        },
    ),
)
