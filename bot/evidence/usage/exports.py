"""What sinks may copy: what machines did while jobs ran, as upstream's two documents and as rows of tables."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from bot.db.exports import (
    COPIED,
    TIME,
    ColumnTable,
    Export,
    Shape,
    StoredObject,
    TableCopy,
    copy_of,
    json_line,
    object_key,
    repo_key,
)
from bot.evidence.collect.blobs import BLOBS
from bot.evidence.collect.remote_blobs import BlobMissing
from bot.evidence.usage.parse.columns import DamagedBlob, decode_usage
from bot.evidence.usage.parse.segments import SEGMENT_LEVEL
from bot.evidence.usage.tables import utilization_job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from bot.context import Context
    from bot.db.exports import ExportedRow, RowKey
    from bot.evidence.usage.parse.columns import StoredUsage

VERSION = "v_1.5"
UUID = "uuid:"
SERIES_AT_ONCE = 8  # series in memory
WHOLE, TEXT = "Int64", "String"
SECOND = "DateTime64(0, 'UTC')"
SEGMENT = f"level {TEXT}, name {TEXT}, start_at {SECOND}, end_at {SECOND}, extra_info Map({TEXT}, {TEXT})"
ID_COLUMNS = {"job_id": "UInt64", "workflow_id": "UInt64", "run_attempt": "UInt32"}
JOB_COLUMNS = {
    **dict.fromkeys(("created_at", "start_at", "end_at"), SECOND), "repo": TEXT, **ID_COLUMNS,
    **dict.fromkeys(("workflow_name", "job_name", "data_model_version", "gpu_type"), TEXT),
    "usage_collect_interval": "Float32", "gpu_count": "UInt32", "cpu_count": "UInt32",
    "segments": f"Array(Tuple({SEGMENT}))", "tags": f"Array({TEXT})",
}  # fmt: skip
POINT_COLUMNS = {
    "created_at": SECOND, "type": TEXT, "tags": f"Array({TEXT})", "time_stamp": SECOND, "repo": TEXT, **ID_COLUMNS,
    "workflow_name": TEXT, "job_name": TEXT, "json_data": TEXT,
}  # fmt: skip


def copy_metadata(export: Export, row: ExportedRow) -> list[StoredObject]:
    """Copy the document about a job."""
    document = describe_job(row)
    return [StoredObject(key=_object_key(export, row, "metadata"), content=lambda: (json_line(document),))]


def describe_job(row: ExportedRow) -> dict[str, Any]:
    """Describe a job as upstream's document does."""
    return _claims(row) | {
        "usage_collect_interval": 1.0 if row["collect_interval"] is None else row["collect_interval"],
        "data_model_version": row["model_version"] or "",
        "gpu_count": row["gpu_count"] or 0,
        "cpu_count": row["cpu_count"] or 0,
        "gpu_type": row["gpu_type"] or "",
        "start_at": row["start_at"],
        "end_at": row["end_at"],
        "segments": [
            {"level": SEGMENT_LEVEL, "name": name, "start_at": start, "end_at": end, "extra_info": {}}
            for name, start, end in row["segments"]
        ],
        "tags": [],
    }


async def load_series(context: Context, rows: Mapping[RowKey, ExportedRow]) -> dict[RowKey, ExportedRow]:
    """Add the stored series, or None once they are no longer kept."""
    loaded: dict[RowKey, ExportedRow] = {}
    for key, row in rows.items():
        try:
            content = await context.resource(BLOBS).get(row["blob"]) if row["blob"] else None
        except BlobMissing:
            content = None
        loaded[key] = {**row, "content": content}
    return loaded


def copy_series(export: Export, row: ExportedRow) -> list[StoredObject]:
    """Copy a line for each record of a job, or nothing once its series are no longer kept."""
    stored = stored_series(row)
    if stored is None:
        return []
    key = _object_key(export, row, "time_series")
    return [StoredObject(key=key, content=lambda: map(json_line, describe_records(row, stored)))]


def stored_series(row: ExportedRow) -> StoredUsage | None:
    """Return the series of a job, or None if they are no longer kept or damaged."""
    try:
        return None if row["content"] is None else decode_usage(row["content"])
    except DamagedBlob:
        return None


def describe_records(row: ExportedRow, stored: StoredUsage) -> Iterator[dict[str, Any]]:
    """Describe each record as upstream's document does."""
    common = {"type": "utilization", "tags": ["record"]}
    claims = _claims(row)
    created_at = {"created_at": claims.pop("created_at")}
    columns = [(name.split("|"), stored.series[name]) for name in stored.series]
    for place, at in enumerate(stored.timestamps):
        data: dict[str, Any] = {}
        for path, column in columns:
            value = column[place]
            _put(data, path, None if math.isnan(value) else value)
        yield created_at | common | {"time_stamp": at} | claims | {"json_data": json.dumps(_as_lists(data))}


def _put(data: dict[str, Any], path: list[str], value: float | None) -> None:
    """Put a number at the path that its series names."""
    for step in path[:-1]:
        if step.startswith(UUID):
            data["uuid"] = step.removeprefix(UUID)
        else:
            data = data.setdefault(step, {})
    data[path[-1]] = value


def _as_lists(value: Any) -> Any:
    """Turn objects whose keys are numbers into lists."""
    if not isinstance(value, dict):
        return value
    if value and all(name.isdigit() for name in value):
        return [_as_lists(inner) for _, inner in sorted(value.items(), key=lambda pair: int(pair[0]))]
    return {name: _as_lists(inner) for name, inner in value.items()}


def _claims(row: ExportedRow) -> dict[str, Any]:
    return {
        "created_at": row["received_at"] // 1000,
        "repo": row["repo"],
        "workflow_id": row["run_id"],
        "run_attempt": row["run_attempt"],
        "job_id": row["job_id"],
        "workflow_name": row["workflow_name"],
        "job_name": row["job_name"],
    }


def _object_key(export: Export, row: ExportedRow, name: str) -> str:
    parts = object_key(row["run_id"], row["run_attempt"], row["job_id"])
    return "/".join((export.name, VERSION, repo_key(row["repo"]), parts, name))


def _series_shape(make: str) -> Shape:
    load = "bot.evidence.usage.exports:load_series"
    return Shape(make=make, load=load, most=SERIES_AT_ONCE)


EXPORTS = (
    Export(
        name="util_metadata",
        group="utilization",
        table=utilization_job,
        day="received_at",
        shapes={
            "upstream": Shape(make="bot.evidence.usage.exports:copy_metadata", most=200),
            "clickhouse.ootbot": COPIED,
            "clickhouse.upstream": Shape(make="bot.evidence.usage.exports:copy_upstream_jobs"),
        },
    ),
    Export(
        name="util_timeseries",
        group="utilization",
        table=utilization_job,
        day="received_at",
        shapes={
            "upstream": _series_shape("bot.evidence.usage.exports:copy_series"),
            "clickhouse.ootbot": _series_shape("bot.evidence.usage.exports:copy_points"),
            "clickhouse.upstream": _series_shape("bot.evidence.usage.exports:copy_upstream_points"),
        },
    ),
)


def copy_points(export: Export) -> TableCopy:
    """Copy the records of jobs to a table of ours."""
    names = tuple(column.name for column in export.key_columns)
    columns = {**dict.fromkeys(names, WHOLE), "repo": f"LowCardinality({TEXT})", "at": TIME, "data": TEXT}

    def rows(row: ExportedRow) -> Iterator[Mapping[str, Any]]:
        common = {name: row[name] for name in (*names, "repo")}
        for record in _records(row):
            yield {**common, "at": record["time_stamp"], "data": record["json_data"]}

    return copy_of(export, columns, name="utilization_point", order=("at",), rows=rows, several=True)


def copy_upstream_jobs(_export: Export) -> TableCopy:
    """Copy jobs to upstream's table."""

    def rows(row: ExportedRow) -> Iterable[Mapping[str, Any]]:
        job = describe_job(row)  # upstream's first tables had these two names
        return ({**job, "started_at": job["start_at"], "ended_at": job["end_at"]},)

    return _upstream_copy(
        "oss_ci_utilization_metadata", JOB_COLUMNS, ("workflow_id", "job_id", "start_at"), rows
    )


def copy_upstream_points(_export: Export) -> TableCopy:
    """Copy the records of jobs to upstream's table."""
    return _upstream_copy(
        "oss_ci_time_series",
        POINT_COLUMNS,
        ("workflow_id", "job_id", "type", "time_stamp"),
        _records,
    )


def _records(row: ExportedRow) -> Iterator[dict[str, Any]]:
    stored = stored_series(row)
    return iter(()) if stored is None else describe_records(row, stored)


def _upstream_copy(
    name: str,
    columns: Mapping[str, str],
    order: tuple[str, ...],
    rows: Callable[[ExportedRow], Iterable[Mapping[str, Any]]],
) -> TableCopy:
    """Copy to a table that replaces nothing: the rows of a job are deleted first."""

    def key_values(key: RowKey, _row: ExportedRow | None) -> tuple[Any, ...] | None:
        _, run_id, attempt, job_id = key
        return (run_id, attempt, job_id) if run_id > 0 and job_id > 0 else None

    def of_github(row: ExportedRow) -> Iterable[Mapping[str, Any]]:
        return rows(row) if row["run_id"] > 0 and row["job_id"] > 0 else ()

    return TableCopy(
        table=ColumnTable(name=f"misc.{name}", columns=columns, order=order, replaces=False, open=True),
        rows=of_github,
        key=("workflow_id", "run_attempt", "job_id"),
        key_values=key_values,
        several=True,
    )
