"""What machines did while jobs ran, as rows of tables: our own, and upstream's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.ci.utilization.exports import describe_job, describe_records, stored_series
from bot.core.column_tables import ColumnTable, TableCopy
from bot.db.table_copies import TIME, copy_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from bot.db.exports import Export, Key, Row

WHOLE, TEXT = "Int64", "String"
SECOND = "DateTime64(0, 'UTC')"
SEGMENT = f"level {TEXT}, name {TEXT}, start_at {SECOND}, end_at {SECOND}, extra_info Map({TEXT}, {TEXT})"
IDS = {"job_id": "UInt64", "workflow_id": "UInt64", "run_attempt": "UInt32"}
JOB = {
    **dict.fromkeys(("created_at", "start_at", "end_at"), SECOND), "repo": TEXT, **IDS,
    **dict.fromkeys(("workflow_name", "job_name", "data_model_version", "gpu_type"), TEXT),
    "usage_collect_interval": "Float32", "gpu_count": "UInt32", "cpu_count": "UInt32",
    "segments": f"Array(Tuple({SEGMENT}))", "tags": f"Array({TEXT})",
}  # fmt: skip
POINT = {
    "created_at": SECOND, "type": TEXT, "tags": f"Array({TEXT})", "time_stamp": SECOND, "repo": TEXT, **IDS,
    "workflow_name": TEXT, "job_name": TEXT, "json_data": TEXT,
}  # fmt: skip


def copy_points(export: Export) -> TableCopy:
    """Return the copy of the records of jobs, in a table of ours."""
    names = tuple(column.name for column in export.key_columns)
    columns = {**dict.fromkeys(names, WHOLE), "repo": f"LowCardinality({TEXT})", "at": TIME, "data": TEXT}

    def rows(row: Row) -> Iterator[Mapping[str, Any]]:
        common = {name: row[name] for name in (*names, "repo")}
        for one in _records(row):
            yield {**common, "at": one["time_stamp"], "data": one["json_data"]}

    return copy_of(export, columns, name="utilization_point", order=("at",), rows=rows, several=True)


def copy_upstream_jobs(_export: Export) -> TableCopy:
    """Return the copy of jobs in upstream's table."""

    def rows(row: Row) -> Iterable[Mapping[str, Any]]:
        found = describe_job(row)  # upstream's first tables had these two names
        return ({**found, "started_at": found["start_at"], "ended_at": found["end_at"]},)

    return _upstream("oss_ci_utilization_metadata", JOB, ("workflow_id", "job_id", "start_at"), rows)


def copy_upstream_points(_export: Export) -> TableCopy:
    """Return the copy of the records of jobs in upstream's table."""
    return _upstream(
        "oss_ci_time_series",
        POINT,
        ("workflow_id", "job_id", "type", "time_stamp"),
        _records,
    )


def _records(row: Row) -> Iterator[dict[str, Any]]:
    stored = stored_series(row)
    return iter(()) if stored is None else describe_records(row, stored)


def _upstream(
    name: str, columns: Mapping[str, str], order: tuple[str, ...], rows: Callable[[Row], Iterable[Mapping[str, Any]]]
) -> TableCopy:  # fmt: skip
    """Return the copy in a table in which nothing is replaced: what there is of a job is deleted first."""

    def key_values(key: Key, _row: Row | None) -> tuple[Any, ...] | None:
        _, run_id, attempt, job_id = key
        return (run_id, attempt, job_id) if run_id > 0 and job_id > 0 else None

    def of_github(row: Row) -> Iterable[Mapping[str, Any]]:
        return rows(row) if row["run_id"] > 0 and row["job_id"] > 0 else ()

    return TableCopy(
        table=ColumnTable(name=f"misc.{name}", columns=columns, order=order, replaces=False, open=True),
        rows=of_github,
        key=("workflow_id", "run_attempt", "job_id"),
        key_values=key_values,
        several=True,
    )
