"""Transitions of one job of one run, in_progress -> completed: the columns that a report changes.

The same report twice changes nothing; the first conclusion stands, unless only our own timeout had concluded the job.
Legs of a matrix that go by one name, told apart by the check run each reports, are one job, which ends as the worst.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from bot.oot.results import shown
from bot.oot.results.tables import JobReported, JobTests
from bot.oot.verdict.verdict import PASSING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.oot.reports.report import Report
    from bot.oot.results.tables import JobChange, JobDurations, JobRow


class Conflict(ValueError):
    """The report contradicts what is recorded; the first stands."""


def decide(
    job: JobRow | None, report: Report, *, now: int, dispatched_at: int | None, waited: bool = True
) -> JobChange | None:
    """Return the columns to write, or None when all of it is recorded already; raises Conflict.

    `job` is the recorded row; times are epoch milliseconds, measured here. Only a job that `waited` for its dispatch
    gets a queue time.
    """
    change = _transition(job, report, now, dispatched_at if waited else None)
    if change is None and job is not None:
        change = _so_far(job, report, now) or _filled(job, report, now)
    if change is not None and _is_odd(job, change, now, dispatched_at):
        change["flags"] = change["flags"] | {"odd_times": True}
    return change


def _transition(job: JobRow | None, report: Report, now: int, dispatched_at: int | None) -> JobChange | None:
    """Return the columns of a job that begins or ends, None where it does neither; raises Conflict."""
    if job is None:
        return _first(report, now, dispatched_at)
    if report.job["status"] == "in_progress":
        ended_unstarted = job["status"] == "completed" and "no_start" in job["flags"]
        if ended_unstarted and not _is_other_leg(job, report):
            raise Conflict("this job has completed already: report in_progress before completed")
        return None
    if job["status"] != "completed":
        return _completed(job, report, now, {})
    if "swept" in job["flags"]:
        return _completed(job, report, now, {"late": True})
    if job["conclusion"] == report.job["conclusion"]:
        return None
    if not _is_other_leg(job, report):
        raise Conflict(f"this job has completed with {job['conclusion']} already; the first report stands")
    worse = _has_passed(job["conclusion"], job["flags"]) and not _has_passed(
        report.job["conclusion"], report.flags
    )
    return _completed(job, report, now, {}) if worse else None


def _is_other_leg(job: JobRow, report: Report) -> bool:
    """Whether a report is about another leg of a matrix than the last: both name their check run."""
    mine, other = job["check_run_id"], report.job["check_run_id"]
    return mine is not None and other is not None and mine != other


def _has_passed(conclusion: str | None, flags: Mapping[str, Any]) -> bool:
    return conclusion in PASSING and "no_conclusion" not in flags


def as_measured(
    job: JobRow | None, change: JobChange | None, measured: JobDurations, *, now: int
) -> JobChange | None:
    """Return a change with the times an outside relay measured instead of ours; without them the stored ones stay.

    Where the report itself changes nothing, times that were missing do.
    """
    queue_time, execution_time = measured["queue_time"], measured["execution_time"]
    if change is None and job is not None:
        queue_time = queue_time if job["queue_time"] is None else None
        execution_time = execution_time if job["execution_time"] is None else None
        if queue_time is None and execution_time is None:
            return None
        change = {**_same(job), "updated_at": now}
    assert change is not None  # a first report always changes something
    changed = change.copy()
    changed.pop("queue_time", None)
    changed.pop("execution_time", None)
    if queue_time is not None:
        changed["queue_time"] = queue_time
    if execution_time is not None:
        changed["execution_time"] = execution_time
    return changed


def swept(job: JobRow, *, now: int, conclusion: str = "timed_out") -> JobChange:
    """Return the columns that conclude a job without its report; a later report replaces them."""
    return {
        "status": "completed",
        "conclusion": conclusion,
        "completed_at": now,
        "execution_time": _seconds(job["started_at"], now),
        "flags": job["flags"] | {"swept": True},
        "updated_at": now,
    }


def _first(report: Report, now: int, dispatched_at: int | None) -> JobChange:
    first_attempt = report.job["run_attempt"] == 1
    started = report.job["status"] == "in_progress"
    change: JobChange = {
        "status": report.job["status"],
        "conclusion": report.job["conclusion"],
        "started_at": now,
        "completed_at": None if started else now,
        "queue_time": _seconds(dispatched_at, now) if started and first_attempt else None,
        "execution_time": None,
        "flags": report.flags if started else report.flags | {"no_start": True},
        "received_at": now,
        "updated_at": now,
    }
    return change | _reported(report)


def _completed(job: JobRow, report: Report, now: int, flags: dict[str, Any]) -> JobChange:
    kept = {name: value for name, value in job["flags"].items() if name != "swept"}
    change: JobChange = {
        "status": "completed",
        "conclusion": report.job["conclusion"],
        "completed_at": now,
        "execution_time": None if "no_start" in kept else _seconds(job["started_at"], now),
        "flags": kept | report.flags | flags,
        "updated_at": now,
    }
    return change | _reported(report)


def _so_far(job: JobRow, report: Report, now: int) -> JobChange | None:
    """Return the tests that a job that runs has had by now, where a repeated report knows of more than the last one."""
    running = job["status"] == report.job["status"] == "in_progress"
    more = (report.job["total_tests"] or 0) > (job["total_tests"] or 0)
    if not running or not more:
        return None
    claimed = cast("dict[str, Any]", report.job)
    tests = cast("JobChange", {name: claimed[name] for name in JobTests.__annotations__})
    return {**_same(job), "flags": job["flags"] | report.flags, "updated_at": now} | _reported(report) | tests


def _filled(job: JobRow, report: Report, now: int) -> JobChange | None:
    """Return what a repeated report knows that was null before; what is there already stays."""
    known = cast("dict[str, Any]", job)
    news = {name: value for name, value in _reported(report).items() if known[name] is None}
    if not news:
        return None
    change: JobChange = {**_same(job), "flags": job["flags"] | report.flags, "updated_at": now}
    return change | cast("JobChange", news)


def _same(job: JobRow) -> JobChange:
    """Return what every change names, as it is."""
    return {"status": job["status"], "conclusion": job["conclusion"], "flags": job["flags"]}


def _is_odd(job: JobRow | None, change: JobChange, now: int, dispatched_at: int | None) -> bool:
    """Whether the times that the backend has reported by now cannot be true."""
    before = (job["reported_started_at"], job["reported_completed_at"]) if job else (None, None)
    reported = shown.Times(
        change.get("reported_started_at", before[0]), change.get("reported_completed_at", before[1])
    )
    return not shown.can_be_true(reported, now=now, dispatched_at=dispatched_at)


def _reported(report: Report) -> JobChange:
    """Return the columns a report has values for: absent ones erase nothing."""
    claimed = cast("dict[str, Any]", report.job)
    names = JobReported.__annotations__
    reported = {name: value for name in names if (value := claimed[name]) is not None}
    return cast("JobChange", reported)


def _seconds(start: int | None, end: int) -> float | None:
    return None if start is None else max(end - start, 0) / 1000
