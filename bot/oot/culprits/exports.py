"""What sinks may have copies of: searches for the commits that broke something, each with its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from bot.core.stored_objects import StoredObject, json_line, object_key, repo_key
from bot.db.exports import KEYS_PER_QUERY, Export, Shape, read_rows
from bot.db.table_copies import column_types, copy_of
from bot.oot.culprits import rows
from bot.oot.culprits.tables import bisect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.core.column_tables import TableCopy
    from bot.db.exports import Key, Row
    from bot.db.transaction import Transaction
    from bot.oot.culprits.tables import StepRow

TIME = "DateTime64(3, 'UTC')"
STEP = (
    "Tuple(number Int64, sha String, purpose String, round Int64, outcome String, detail String,"
    f" created_at {TIME}, sent_at {TIME}, ended_at {TIME})"
)


async def read_searches(tx: Transaction, export: Export, keys: Sequence[Key]) -> dict[Key, Row]:
    """Return searches with their steps."""
    found = await read_rows(tx, export, keys)
    identifiers = [str(key[0]) for key in found]
    steps: dict[str, list[StepRow]] = {}
    for start in range(0, len(identifiers), KEYS_PER_QUERY):
        steps |= await rows.steps_of_searches(tx, identifiers[start : start + KEYS_PER_QUERY])
    return {key: {**row, "steps": _described(steps.get(row["id"], []))} for key, row in found.items()}


def _described(steps: Sequence[StepRow]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in cast("dict[str, Any]", step).items() if name != "bisect_id"}
        for step in steps
    ]


def copy_search(export: Export, row: Row) -> list[StoredObject]:
    """Return a search as an object below the repository that is searched."""
    key = "/".join((export.name, repo_key(row["upstream_repo"]), object_key(row["id"])))
    return [StoredObject(key=key, content=lambda: (json_line(dict(row)),))]


def copy_search_rows(export: Export) -> TableCopy:
    """Return the copy of searches in a table of ours."""
    return copy_of(export, {**column_types(export.table), "steps": f"Array({STEP})"})


def _shape(make: str) -> Shape:
    module = "bot.oot.culprits.exports"
    return Shape(make=f"{module}:{make}", read=f"{module}:read_searches", most=500)


EXPORTS = (
    Export(
        name="bisects",
        table=bisect,
        day="created_at",
        repositories=("repository_id", "upstream_repo", "backend"),
        shapes={"upstream": _shape("copy_search"), "clickhouse.ootbot": _shape("copy_search_rows")},
    ),
)
