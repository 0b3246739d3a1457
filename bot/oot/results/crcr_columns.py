"""A job as a row of ClickHouse's `default.crcr_workflow_job`, which dashboards of today's relay query.

That table knows no null but in the two durations: what is unknown is 0, an empty text or the beginning of 1970.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import cast

import msgspec

from bot.db.rows import fields
from bot.oot.results import shown
from bot.oot.results.tables import JobRow

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


COLUMNS = (  # those that are written; see COMPUTED for the table's own
    "dynamoKey", "status", "downstream_repo", "upstream_repo", "pr_number", "pytorch_head_sha", "delivery_id",
    "workflow_run_url", "workflow_name", "job_name", "check_run_id", "run_id", "run_attempt", "conclusion",
    "queue_time", "execution_time", "started_at", "completed_at", "total_tests", "passed_tests", "failed_tests",
    "skipped_tests", "failed_tests_json", "artifact_url", "environment", "downstream_repo_level", "event_type",
    "triage_verdict_json",
)  # fmt: skip
WHOLE, SECONDS, TIME = "UInt64", "Nullable(Float64)", "DateTime64(9)"
TYPES = dict.fromkeys(COLUMNS, "String") | {
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


def columns(job: JobRow) -> dict[str, object]:
    """Return a job's columns: those of our own table, where it has them; its times are those that are shown."""
    times = shown.times(job)
    others: dict[str, object] = {
        "dynamoKey": key(job),
        "pytorch_head_sha": job["head_sha"] or "",
        "started_at": _time(times.started_at),
        "completed_at": _time(times.completed_at),
        "failed_tests_json": _json(job["failed_tests_json"]),
        "triage_verdict_json": _json(job["triage_verdict"]),
        "environment": _json(job["environment"]),
        "downstream_repo_level": f"L{job['downstream_repo_level']}",
    }
    known = cast("dict[str, object]", job)
    return {name: others[name] if name in others else _filled(name, known[name]) for name in COLUMNS}


def _filled(name: str, value: object) -> object:
    return UNKNOWN[JOB[name].type] if value is None else value


def key(job: JobRow) -> str:
    """Return the key that a job has in DynamoDB, and its row here."""
    parts = (
        job["downstream_repo"],
        job["delivery_id"],
        job["workflow_name"],
        job["job_name"],
        job["check_run_id"] or "",
    )
    return "/".join(parts)


def _time(at: int | None) -> datetime:
    return EPOCH if at is None else EPOCH + timedelta(milliseconds=at)


def _json(value: object) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()
