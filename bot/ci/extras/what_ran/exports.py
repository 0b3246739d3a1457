"""What sinks may have copies of: test files that jobs left out on purpose, and tests that this missed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.extras.what_ran.tables import td_miss
from bot.ci.test_results.tables import test_exclusion
from bot.core.stored_objects import StoredObject, json_line, object_key, repo_key
from bot.db.exports import Export, Shape
from bot.db.table_copies import COPIED

if TYPE_CHECKING:
    from bot.db.exports import Row


def copy_row(export: Export, row: Row) -> list[StoredObject]:
    """Return a row as an object below its repository."""
    place = object_key(*export.key_of(row)[1:])
    key = "/".join((export.name, repo_key(row["repo"]), place))
    return [StoredObject(key=key, content=lambda: (json_line(dict(row)),))]


SHAPES = {
    "upstream": Shape(make="bot.ci.extras.what_ran.exports:copy_row", most=500),
    "clickhouse.ootbot": COPIED,
}
EXPORTS = (
    Export(name="test_exclusions", group="selection", table=test_exclusion, day="received_at", shapes=SHAPES),
    Export(name="td_misses", group="selection", table=td_miss, day="at", shapes=SHAPES),
)
