"""What sinks may have copies of: the list of artifacts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.collect.tables import ci_artifact
from bot.core.stored_objects import StoredObject, json_line, object_key, repo_key
from bot.db.exports import Export, Shape
from bot.db.table_copies import COPIED

if TYPE_CHECKING:
    from bot.db.exports import Row


def copy_artifact(export: Export, row: Row) -> list[StoredObject]:
    """Return what is known of an artifact as an object."""
    key = "/".join((export.name, repo_key(row["repo"]), object_key(row["run_id"], row["id"])))
    return [StoredObject(key=key, content=lambda: (json_line(dict(row)),))]


EXPORTS = (
    Export(
        name="artifacts",
        table=ci_artifact,
        day="created_at",
        shapes={
            "upstream": Shape(make="bot.ci.collect.exports:copy_artifact", most=500),
            "clickhouse.ootbot": COPIED,
        },
    ),
)
