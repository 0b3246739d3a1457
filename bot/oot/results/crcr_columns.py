"""A job as a row of ClickHouse's `default.crcr_workflow_job`, which dashboards of today's relay query.

That table knows no null but in the two durations: what is unknown is 0, an empty text or the beginning of 1970.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypedDict

import msgspec

from bot.oot.results import shown

if TYPE_CHECKING:
    from bot.oot.results.tables import JobRow

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class CrcrWorkflowJob(TypedDict):
    """The columns that are written; `_inserted_at` and two aliases are the table's own."""

    dynamoKey: str
    status: str
    downstream_repo: str
    upstream_repo: str
    pr_number: int
    pytorch_head_sha: str
    delivery_id: str
    workflow_run_url: str
    workflow_name: str
    job_name: str
    check_run_id: str
    run_id: str
    run_attempt: int
    conclusion: str
    queue_time: float | None
    execution_time: float | None
    started_at: datetime
    completed_at: datetime
    total_tests: int
    passed_tests: int
    failed_tests: int
    skipped_tests: int
    failed_tests_json: str
    artifact_url: str
    environment: str
    downstream_repo_level: str
    event_type: str


def columns(job: JobRow) -> CrcrWorkflowJob:
    """Return a job's columns; its times are those that are shown."""
    times = shown.times(job)
    return {
        "dynamoKey": key(job),
        "status": job["status"],
        "downstream_repo": job["downstream_repo"],
        "upstream_repo": job["upstream_repo"],
        "pr_number": job["pr_number"] or 0,
        "pytorch_head_sha": job["head_sha"] or "",
        "delivery_id": job["delivery_id"],
        "workflow_run_url": job["workflow_run_url"] or "",
        "workflow_name": job["workflow_name"],
        "job_name": job["job_name"],
        "check_run_id": job["check_run_id"] or "",
        "run_id": job["run_id"],
        "run_attempt": job["run_attempt"],
        "conclusion": job["conclusion"] or "",
        "queue_time": job["queue_time"],
        "execution_time": job["execution_time"],
        "started_at": _time(times.started_at),
        "completed_at": _time(times.completed_at),
        "total_tests": job["total_tests"] or 0,
        "passed_tests": job["passed_tests"] or 0,
        "failed_tests": job["failed_tests"] or 0,
        "skipped_tests": job["skipped_tests"] or 0,
        "failed_tests_json": _json(job["failed_tests_json"]),
        "artifact_url": job["artifact_url"] or "",
        "environment": _json(job["environment"]),
        "downstream_repo_level": f"L{job['downstream_repo_level']}",
        "event_type": job["event_type"],
    }


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
