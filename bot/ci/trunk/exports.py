"""What sinks may have copies of: columns of the grid, how they changed on branches, commits, waits for runners."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.trunk.tables import ci_column, ci_line, ci_runner_day, trunk_event
from bot.core.stored_objects import StoredObject, json_line, object_key, repo_key
from bot.db.exports import Export, Shape, encode_key
from bot.db.table_copies import COPIED
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from bot.db.exports import Row


def copy_row(export: Export, row: Row) -> list[StoredObject]:
    """Return a row as an object below its repository, named by a digest of its key."""
    digest = hashlib.sha256(encode_key(export.key_of(row)).encode()).hexdigest()[:32]
    key = "/".join((export.name, repo_key(row["repo"]), object_key(digest)))
    return [StoredObject(key=key, content=lambda: (json_line(dict(row)),))]


def _of_day(make: str) -> Shape:
    module = "bot.ci.trunk"
    return Shape(
        make=f"{module}.exported_days:{make}", read=f"{module}.store.exported_rows:read_days", most=50
    )


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
    Export(
        name="lines",
        group="trunk",
        table=ci_line,
        key=("repository_id", "branch", "day"),
        day=sa.cast(ci_line.c.day, sa.BigInteger) * DAY,
        shapes={"upstream": _of_day("copy_lines"), "clickhouse.ootbot": _of_day("copy_line_rows")},
    ),
    Export(
        name="queue_times",
        table=ci_runner_day,
        key=("repository_id", "day"),
        day=sa.cast(ci_runner_day.c.day, sa.BigInteger) * DAY,
        shapes={
            "upstream": _of_day("copy_queue_times"),
            "clickhouse.ootbot": _of_day("copy_queue_rows"),
            "clickhouse.upstream": _of_day("copy_upstream_queue"),
        },
    ),
)
