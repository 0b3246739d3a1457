"""What sinks may have copies of beside results: states of tests that are not simply healthy, and what runs lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.test_results.tables import test_loss, test_state
from bot.core.stored_objects import StoredObject, json_line, object_key, repo_key
from bot.db.exports import Export, Shape
from bot.db.table_copies import column_types, copy_of

if TYPE_CHECKING:
    from bot.core.column_tables import TableCopy
    from bot.db.exports import Row

NAMES = {"file": "LowCardinality(String)", "suite": "LowCardinality(String)"}


def copy_state_rows(export: Export) -> TableCopy:
    """Return the copy of states of tests."""
    return copy_of(export, {**column_types(export.table), **NAMES, "name": "String"})


def copy_losses(export: Export, row: Row) -> list[StoredObject]:
    """Return what a run lost, a line each."""
    key = "/".join((export.name, repo_key(row["repo"]), object_key(row["run_id"])))
    return [StoredObject(key=key, content=lambda: map(json_line, row["rows"]))]


def copy_loss_rows(export: Export) -> TableCopy:
    """Return the copy of what runs lost."""
    return copy_of(
        export,
        {**column_types(export.table), **NAMES},
        order=("family", "class_id", "kind"),
        rows=lambda row: ({**one, "repo": row["repo"]} for one in row["rows"]),
        several=True,
    )


def _shape(make: str, read: str) -> Shape:
    return Shape(make=make, read=f"bot.ci.test_results.store.exported_rows:{read}", most=500)


MODULE = "bot.ci.test_results.exported_states"
EXPORTS = (
    Export(
        name="test_states",
        group="tests",
        table=test_state,
        day="at",
        shapes={
            "upstream": _shape("bot.db.object_copies:copy_row", "read_states"),
            "clickhouse.ootbot": _shape(f"{MODULE}:copy_state_rows", "read_states"),
        },
    ),
    Export(
        name="test_losses",
        group="tests",
        table=test_loss,
        key=("repository_id", "run_id"),
        day="at",
        repositories=("repository_id", "backend"),
        shapes={
            "upstream": _shape(f"{MODULE}:copy_losses", "read_losses"),
            "clickhouse.ootbot": _shape(f"{MODULE}:copy_loss_rows", "read_losses"),
        },
    ),
)
