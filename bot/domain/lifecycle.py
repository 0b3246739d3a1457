"""What does a report change about its job? Transitions of one job of one run: in_progress -> completed.

The same report twice changes nothing; what was concluded stands, except where only our own clock had concluded it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bot.domain.wire import Report


class Conflict(ValueError):
    """The report contradicts what is recorded; the first stands."""


def decide(
    job: dict[str, Any] | None, report: Report, *, now: int, dispatched_at: int | None
) -> dict[str, Any] | None:
    """Return the columns to write, or None when it is recorded already; raises Conflict.

    `job` is the recorded row; times are epoch milliseconds, measured here.
    """
    if job is None:
        return _first(report, now, dispatched_at)
    if report.status == "in_progress":
        if job["status"] == "completed" and "no_start" in job["flags"]:
            raise Conflict("this job has completed already: report in_progress before completed")
        return None
    if job["status"] == "completed":
        if "swept" not in job["flags"]:
            if job["conclusion"] == report.conclusion:
                return None
            raise Conflict(
                f"this job has completed with {job['conclusion']} already; the first report stands"
            )
        return _completed(job, report, now, {"late": True})
    return _completed(job, report, now, {})


def as_measured(
    values: dict[str, Any], *, queue_time: float | None, execution_time: float | None
) -> dict[str, Any]:
    """Return a change with the times an outside relay measured instead of ours; what it did not measure is kept."""
    told = {"queue_time": queue_time, "execution_time": execution_time}
    ours = {name: value for name, value in values.items() if name not in told}
    return ours | {name: value for name, value in told.items() if value is not None}


def swept(job: dict[str, Any], *, now: int, conclusion: str = "timed_out") -> dict[str, Any]:
    """Return the columns of a job that stayed silent past its time, or will; a later report replaces them."""
    return {
        "status": "completed",
        "conclusion": conclusion,
        "completed_at": now,
        "execution_time": _seconds(job["started_at"], now),
        "flags": job["flags"] | {"swept": True},
        "updated_at": now,
    }


def _first(report: Report, now: int, dispatched_at: int | None) -> dict[str, Any]:
    first_attempt = report.run_attempt == 1
    started = report.status == "in_progress"
    values = {
        "status": report.status,
        "conclusion": report.conclusion,
        "started_at": now,
        "completed_at": None if started else now,
        "queue_time": _seconds(dispatched_at, now) if started and first_attempt else None,
        "execution_time": None,
        "flags": report.flags if started else report.flags | {"no_start": True},
        "received_at": now,
        "updated_at": now,
    }
    return values | _reported(report)


def _completed(job: dict[str, Any], report: Report, now: int, flags: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in job["flags"].items() if name != "swept"}
    values = {
        "status": "completed",
        "conclusion": report.conclusion,
        "completed_at": now,
        "execution_time": None if "no_start" in kept else _seconds(job["started_at"], now),
        "flags": kept | report.flags | flags,
        "updated_at": now,
    }
    return values | _reported(report)


def _reported(report: Report) -> dict[str, Any]:
    """Return the columns a report carries values for: one that is silent erases nothing."""
    told = {
        "workflow_run_url": report.url,
        "check_run_id": report.check_run_id,
        "total_tests": report.total,
        "passed_tests": report.passed,
        "failed_tests": report.failed,
        "skipped_tests": report.skipped,
        "failed_tests_json": report.failed_tests,
        "artifact_url": report.artifact_url,
        "environment": report.environment,
    }
    return {name: value for name, value in told.items() if value is not None}


def _seconds(start: int | None, end: int) -> float | None:
    return None if start is None else max(end - start, 0) / 1000
