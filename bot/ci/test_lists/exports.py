"""What sinks may have copies of: how often disabled tests passed and failed where they are run over and over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.ci.test_results.job_tables import test_job
from bot.ci.test_results.store.exported_rows import RUN_KEY
from bot.core.column_tables import ColumnTable, TableCopy
from bot.core.stored_objects import StoredObject, json_line, object_key
from bot.db.exports import Export, Shape
from bot.db.table_copies import copy_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bot.db.exports import Row


def copy_reruns(export: Export, row: Row) -> list[StoredObject]:
    """Return the reruns of a run, a line for each test."""
    found = describe_reruns(row)
    key = object_key(export.name, row["run_id"], row["run_attempt"])
    return [StoredObject(key=key, content=lambda: map(json_line, found))]


def describe_reruns(row: Row) -> list[dict[str, Any]]:
    """Return what upstream's document says of each test."""
    return [
        {
            "classname": one["suite"],
            "filename": one["file"],
            "flaky": one["flaky"],
            "name": one["name"],
            "num_green": one["green"],
            "num_red": one["red"],
            "workflow_id": row["run_id"],
            "workflow_run_attempt": row["run_attempt"],
        }
        for one in row["reruns"]
    ]


def copy_rerun_rows(export: Export) -> TableCopy:
    """Return the copy of reruns in a table of ours."""
    columns = {
        **dict.fromkeys(RUN_KEY, "Int64"), "repo": "LowCardinality(String)", "file": "String", "suite": "String",
        "name": "String", "green": "Int64", "red": "Int64", "flaky": "Bool",
    }  # fmt: skip

    def rows(row: Row) -> Iterator[Mapping[str, Any]]:
        common = {name: row[name] for name in RUN_KEY} | {"repo": row.get("repo")}
        return ({**one, **common} for one in row["reruns"])

    order = ("file", "suite", "name")
    return copy_of(export, columns, name="rerun_disabled_test", order=order, rows=rows, several=True)


def copy_upstream_reruns(_export: Export) -> TableCopy:
    """Return the copy of reruns in upstream's table."""
    columns = {
        **dict.fromkeys(("classname", "filename", "name"), "String"), "flaky": "Bool",
        **dict.fromkeys(("num_green", "num_red", "workflow_id", "workflow_run_attempt"), "Int64"),
    }  # fmt: skip
    return TableCopy(
        table=ColumnTable(
            name="default.rerun_disabled_tests",
            columns=columns,
            order=("workflow_id", "filename", "classname", "name"),
        ),
        rows=describe_reruns,
        key=("workflow_id", "workflow_run_attempt"),
        key_values=lambda key, _row: key[1:],
        several=True,
    )


MADE = {
    "upstream": "copy_reruns",
    "clickhouse.ootbot": "copy_rerun_rows",
    "clickhouse.upstream": "copy_upstream_reruns",
}


def _shape(make: str) -> Shape:
    read = "bot.ci.test_lists.rerun_rows:read_reruns_of_runs"
    return Shape(make=f"bot.ci.test_lists.exports:{make}", read=read, most=20)


EXPORTS = (
    Export(
        name="rerun_disabled_tests",
        group="tests",
        table=test_job,
        key=RUN_KEY,
        day="at",
        repositories=("repository_id", "backend", "upstream_repo"),
        condition=test_job.c.rerun_disabled,
        shapes={name: _shape(make) for name, make in MADE.items()},
    ),
)
