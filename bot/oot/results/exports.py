"""What sinks may have copies of: the jobs that backends reported."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

import msgspec

from bot.db.exports import (
    COPIED,
    ColumnTable,
    Export,
    Shape,
    StoredItem,
    StoredObject,
    TableCopy,
    json_line,
    object_key,
    repo_key,
)
from bot.db.rows import fields
from bot.oot.results import visibility
from bot.oot.results.tables import JobRow, oot_workflow_job

if TYPE_CHECKING:
    from bot.db.exports import ExportedRow, RowKey

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

CRCR_COLUMNS = (  # those that are written; see COMPUTED for the table's own
    "dynamoKey", "status", "downstream_repo", "upstream_repo", "pr_number", "pytorch_head_sha", "delivery_id",
    "workflow_run_url", "workflow_name", "job_name", "check_run_id", "run_id", "run_attempt", "conclusion",
    "queue_time", "execution_time", "started_at", "completed_at", "total_tests", "passed_tests", "failed_tests",
    "skipped_tests", "failed_tests_json", "artifact_url", "environment", "downstream_repo_level", "event_type",
    "triage_verdict_json",
)  # fmt: skip
WHOLE, SECONDS, TIME = "UInt64", "Nullable(Float64)", "DateTime64(9)"
CRCR_TYPES = dict.fromkeys(CRCR_COLUMNS, "String") | {
    "pr_number": WHOLE, "run_attempt": "UInt32", "queue_time": SECONDS, "execution_time": SECONDS,
    "started_at": TIME, "completed_at": TIME, "total_tests": WHOLE, "passed_tests": WHOLE, "failed_tests": WHOLE,
    "skipped_tests": WHOLE,
}  # fmt: skip
COMPUTED = {  # by the server, of the others
    "_inserted_at": "DateTime MATERIALIZED now()",
    "repository_full_name": "String ALIAS downstream_repo",
    "duration_seconds": (
        "Float64 ALIAS if(toUnixTimestamp(completed_at) = 0, 0, dateDiff('second', started_at, completed_at))"
    ),
}
UNKNOWN: dict[type, object] = {str: "", int: 0, float: None}
JOB = fields(JobRow)
EXPORTS = (
    Export(
        name="oot_workflow_job",
        table=oot_workflow_job,
        day="received_at",
        repositories=("downstream_repo", "upstream_repo"),
        shapes={
            "upstream": Shape(make="bot.oot.results.exports:copy_job", most=500),
            "clickhouse.ootbot": COPIED,
            "clickhouse.upstream": Shape(make="bot.oot.results.exports:copy_upstream_job"),
            "dynamodb": Shape(make="bot.oot.results.exports:copy_item", most=500),
        },
    ),
)


def crcr_columns(job: JobRow) -> dict[str, object]:
    """Return a job's columns: those of our own table where it has them, with the times that pages show."""
    times = visibility.job_times(job)
    others: dict[str, object] = {
        "dynamoKey": crcr_key(job),
        "pytorch_head_sha": job["head_sha"] or "",
        "started_at": _time(times.started_at),
        "completed_at": _time(times.completed_at),
        "failed_tests_json": _json(job["failed_tests_json"]),
        "triage_verdict_json": _json(job["triage_verdict"]),
        "environment": _json(job["environment"]),
        "downstream_repo_level": f"L{job['downstream_repo_level']}",
    }
    known = cast("dict[str, object]", job)
    return {name: others[name] if name in others else _filled(name, known[name]) for name in CRCR_COLUMNS}


def crcr_key(job: JobRow) -> str:
    """Return the key that a job has in DynamoDB, and its row here."""
    parts = (
        job["downstream_repo"],
        job["delivery_id"],
        job["workflow_name"],
        job["job_name"],
        job["check_run_id"] or "",
    )
    return "/".join(parts)


def copy_job(export: Export, row: ExportedRow) -> list[StoredObject]:
    """Return a job as an object with the columns of `crcr_workflow_job`."""
    job = cast("JobRow", row)
    key = "/".join((export.name, repo_key(job["downstream_repo"]), object_key(job["job_key"])))
    return [StoredObject(key=key, content=lambda: (json_line(crcr_columns(job)),))]


def copy_upstream_job(_export: Export) -> TableCopy:
    """Return the copy of jobs in today's relay's table, `default.crcr_workflow_job`."""

    def key_values(_key: RowKey, row: ExportedRow | None) -> tuple[str, ...] | None:
        return None if row is None else (crcr_key(cast("JobRow", row)),)

    return TableCopy(
        table=ColumnTable(
            name="default.crcr_workflow_job",
            columns=CRCR_TYPES,
            order=("downstream_repo", "delivery_id", "dynamoKey"),
            computed=COMPUTED,
        ),
        rows=lambda row: (crcr_columns(cast("JobRow", row)),),
        key=("dynamoKey",),
        key_values=key_values,
    )


def copy_item(_export: Export, row: ExportedRow) -> list[StoredItem]:
    """Return a job as an item with the columns of `crcr_workflow_job`, without unknown ones."""
    job = cast("JobRow", row)
    columns = crcr_columns(job)
    columns |= {name: None for name, at in visibility.job_times(job)._asdict().items() if at is None}
    return [StoredItem(table="oot-workflow-job", key=crcr_key(job), attributes=columns)]


def _filled(name: str, value: object) -> object:
    return UNKNOWN[JOB[name].type] if value is None else value


def _time(at: int | None) -> datetime:
    return EPOCH if at is None else EPOCH + timedelta(milliseconds=at)


def _json(value: object) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()
