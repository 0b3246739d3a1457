"""What sinks may have copies of: the lists of disabled and slow tests, as they are served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.disabled.tables import ci_list
from bot.core.stored_objects import StoredObject, object_key, repo_key
from bot.db.exports import Export, Shape

if TYPE_CHECKING:
    from bot.db.exports import Row


def copy_list(export: Export, row: Row) -> list[StoredObject]:
    """Return a list as an object of its name."""
    body: bytes = row["body"]
    key = "/".join((export.name, repo_key(row["repo"]), object_key(row["name"])))
    return [StoredObject(key=key, content=lambda: (body,))]


EXPORTS = (
    Export(
        name="lists",
        table=ci_list,
        day="made_at",
        shapes={"upstream": Shape(make="bot.ci.disabled.exports:copy_list", most=20)},
    ),
)
