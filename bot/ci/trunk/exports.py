"""What sinks may have copies of: the columns of the grid, and how they changed on branches."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.trunk.tables import ci_column, trunk_event
from bot.core.stored_objects import StoredObject, json_line, object_key, repo_key
from bot.db.exports import Export, Shape, encode_key
from bot.db.table_copies import COPIED

if TYPE_CHECKING:
    from bot.db.exports import Row

DAY = 86_400_000  # milliseconds


def copy_row(export: Export, row: Row) -> list[StoredObject]:
    """Return a row as an object below its repository, named by a digest of its key."""
    digest = hashlib.sha256(encode_key(export.key_of(row)).encode()).hexdigest()[:32]
    key = "/".join((export.name, repo_key(row["repo"]), object_key(digest)))
    return [StoredObject(key=key, content=lambda: (json_line(dict(row)),))]


SHAPES = {
    "upstream": Shape(make="bot.ci.trunk.exports:copy_row", most=500),
    "clickhouse.ootbot": COPIED,
}
EXPORTS = (
    Export(
        name="columns",
        group="trunk",
        table=ci_column,
        day=sa.cast(ci_column.c.seen, sa.BigInteger) * DAY,
        shapes=SHAPES,
    ),
    Export(name="trunk_events", group="trunk", table=trunk_event, day="at", shapes=SHAPES),
)
