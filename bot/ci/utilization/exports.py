"""What sinks may have copies of: what machines did while jobs ran, as upstream's two documents."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from bot.ci.collect.blob_store import BlobMissing
from bot.ci.collect.blobs import BLOBS
from bot.ci.utilization.parse.blob import DamagedBlob, decode
from bot.ci.utilization.parse.segments import LEVEL
from bot.ci.utilization.tables import utilization_job
from bot.core.stored_objects import StoredObject, json_line, object_key, repo_key
from bot.db.exports import Export, Shape
from bot.db.table_copies import COPIED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bot.ci.utilization.parse.blob import Stored
    from bot.context import Context
    from bot.db.exports import Key, Row

VERSION = "v_1.5"
UUID = "uuid:"
TOGETHER = 8  # series in memory


def copy_metadata(export: Export, row: Row) -> list[StoredObject]:
    """Return the document about a job."""
    document = describe_job(row)
    return [StoredObject(key=_key(export, row, "metadata"), content=lambda: (json_line(document),))]


def describe_job(row: Row) -> dict[str, Any]:
    """Return what upstream's document says of a job."""
    return _claims(row) | {
        "usage_collect_interval": 1.0 if row["collect_interval"] is None else row["collect_interval"],
        "data_model_version": row["model_version"] or "",
        "gpu_count": row["gpu_count"] or 0,
        "cpu_count": row["cpu_count"] or 0,
        "gpu_type": row["gpu_type"] or "",
        "start_at": row["start_at"],
        "end_at": row["end_at"],
        "segments": [
            {"level": LEVEL, "name": name, "start_at": start, "end_at": end, "extra_info": {}}
            for name, start, end in row["segments"]
        ],
        "tags": [],
    }


async def load_series(context: Context, rows: Mapping[Key, Row]) -> dict[Key, Row]:
    """Add the stored series; None where they are no longer kept."""
    found: dict[Key, Row] = {}
    for key, row in rows.items():
        try:
            content = await context.resource(BLOBS).get(row["blob"]) if row["blob"] else None
        except BlobMissing:
            content = None
        found[key] = {**row, "content": content}
    return found


def copy_series(export: Export, row: Row) -> list[StoredObject]:
    """Return a line for each record of a job; none where its series are no longer kept."""
    stored = stored_series(row)
    if stored is None:
        return []
    key = _key(export, row, "time_series")
    return [StoredObject(key=key, content=lambda: map(json_line, describe_records(row, stored)))]


def stored_series(row: Row) -> Stored | None:
    """Return the series of a job, None where they are no longer kept or damaged."""
    try:
        return None if row["content"] is None else decode(row["content"])
    except DamagedBlob:
        return None


def describe_records(row: Row, stored: Stored) -> Iterator[dict[str, Any]]:
    """Yield what upstream's document says of each record."""
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
    """Put a number where its series says that it stood."""
    for step in path[:-1]:
        if step.startswith(UUID):
            data["uuid"] = step.removeprefix(UUID)
        else:
            data = data.setdefault(step, {})
    data[path[-1]] = value


def _as_lists(value: Any) -> Any:
    """Return data with lists where the steps are numbers."""
    if not isinstance(value, dict):
        return value
    if value and all(name.isdigit() for name in value):
        return [_as_lists(inner) for _, inner in sorted(value.items(), key=lambda pair: int(pair[0]))]
    return {name: _as_lists(inner) for name, inner in value.items()}


def _claims(row: Row) -> dict[str, Any]:
    return {
        "created_at": row["received_at"] // 1000,
        "repo": row["repo"],
        "workflow_id": row["run_id"],
        "run_attempt": row["run_attempt"],
        "job_id": row["job_id"],
        "workflow_name": row["workflow_name"],
        "job_name": row["job_name"],
    }


def _key(export: Export, row: Row, name: str) -> str:
    parts = object_key(row["run_id"], row["run_attempt"], row["job_id"])
    return "/".join((export.name, VERSION, repo_key(row["repo"]), parts, name))


def _series(make: str) -> Shape:
    load = "bot.ci.utilization.exports:load_series"
    return Shape(make=f"bot.ci.utilization.{make}", load=load, most=TOGETHER)


EXPORTS = (
    Export(
        name="util_metadata",
        group="utilization",
        table=utilization_job,
        day="received_at",
        shapes={
            "upstream": Shape(make="bot.ci.utilization.exports:copy_metadata", most=200),
            "clickhouse.ootbot": COPIED,
            "clickhouse.upstream": Shape(make="bot.ci.utilization.exported_tables:copy_upstream_jobs"),
        },
    ),
    Export(
        name="util_timeseries",
        group="utilization",
        table=utilization_job,
        day="received_at",
        shapes={
            "upstream": _series("exports:copy_series"),
            "clickhouse.ootbot": _series("exported_tables:copy_points"),
            "clickhouse.upstream": _series("exported_tables:copy_upstream_points"),
        },
    ),
)
