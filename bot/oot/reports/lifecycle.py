"""Transitions of one job of one run, by its reports and by what GitHub says of its run and its commit."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from bot.core.errors import GitHubRefused, NotYet, RetryLater
from bot.github import responses
from bot.ingest import deliveries, inbox
from bot.oot.allowlist import versions
from bot.oot.reports import rows
from bot.oot.results import dispatches, jobs, runs, task_keys, visibility
from bot.oot.results.tables import JobReported, JobTests
from bot.oot.results.task_keys import request_publish
from bot.oot.verdict.verdict import PASSING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.oot.reports.report import CheckedReport
    from bot.oot.results.tables import JobChange, JobDurations, JobRow
    from bot.queue.tasks import Task

CONFIRM_SOON = (5.0, 10.0, 20.0, 30.0, 60.0)  # seconds between the first requests
CONFIRM_THEN = 600.0
# seconds until GitHub is asked again, milliseconds it is asked for
VERIFY_AGAIN, VERIFY_PATIENCE = (3600.0, 24 * 3_600_000)
ON_DEFAULT_BRANCH = frozenset({"behind", "identical"})


class Conflict(ValueError):
    """The report contradicts what is recorded; the first stands."""


def decide_change(
    job: JobRow | None, report: CheckedReport, *, now: int, dispatched_at: int | None, waited: bool = True
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


def with_measured_times(
    job: JobRow | None, change: JobChange | None, measured: JobDurations, *, now: int
) -> JobChange | None:
    """Replace the times of a change by those an outside relay measured; without them the stored ones stay.

    Where the report itself changes nothing, times that were missing do.
    """
    queue_time, execution_time = measured["queue_time"], measured["execution_time"]
    if change is None and job is not None:
        queue_time = queue_time if job["queue_time"] is None else None
        execution_time = execution_time if job["execution_time"] is None else None
        if queue_time is None and execution_time is None:
            return None
        change = {**_unchanged_columns(job), "updated_at": now}
    assert change is not None  # a first report always changes something
    changed = change.copy()
    changed.pop("queue_time", None)
    changed.pop("execution_time", None)
    if queue_time is not None:
        changed["queue_time"] = queue_time
    if execution_time is not None:
        changed["execution_time"] = execution_time
    return changed


def finish_unreported(job: JobRow, *, now: int, conclusion: str = "timed_out") -> JobChange:
    """Return the columns that finish a job without its report; a later report replaces them."""
    return {
        "status": "completed",
        "conclusion": conclusion,
        "completed_at": now,
        "execution_time": _seconds(job["started_at"], now),
        "flags": job["flags"] | {"swept": True},
        "updated_at": now,
    }


async def confirm_run(context: Context, task: Task) -> None:
    """Record GitHub's status of one attempt of a run, and publish its pull requests again."""
    backend, run_id, attempt = task_keys.parse_run(task.key)
    unknown = await context.store.write(partial(_from_delivery, context, backend, run_id, attempt))
    if unknown is None:
        return
    waiting, patience = unknown
    listed = waiting[0]["downstream_repo"]
    age = context.clock.now() - _first_reported_at(waiting, attempt)
    over = age > patience * 1000
    wait = CONFIRM_SOON[task.attempts - 1] if task.attempts <= len(CONFIRM_SOON) else CONFIRM_THEN
    run, status = await _read_run(context, (listed, run_id, attempt), age=age, over=over, wait=wait)
    async with context.store.transaction() as tx:
        if run is not None:
            await inbox.store_delivery(
                tx, deliveries.delivery_of_answer("workflow_run", run, run["repository"])
            )
            if run["status"] == "completed":
                return
        if run is None or over:
            await runs.record_run_status(tx, backend, run_id, attempt, status)
            await _request_publishing(tx, waiting)
            return
    raise NotYet(f"run {run_id} of {listed} is still {run['status']}", after=wait)


async def verify_commit(context: Context, task: Task) -> None:
    """Find out which repository has the commit, from our own rows if possible, and settle its reports."""
    async with context.store.read() as tx:
        statuses = await rows.read_statuses(tx, task.key)
        pushed = [
            repo for repo in context.settings.upstream_repo if await rows.was_pushed(tx, repo, task.key)
        ]
    waiting = [status for status in statuses if status["unverified"]]
    settled = [status for status in statuses if not status["unverified"]]
    if not waiting:
        return
    homes = [*pushed, *(status["upstream_repo"] for status in settled if not status["unknown"])]
    if homes:
        home: str | None = homes[0]
    # a backend that names a commit too early must not spoil it for others
    elif {status["backend"] for status in waiting} <= {status["backend"] for status in settled}:
        home = None
    else:
        home = await _ask_for_commit(context, task.key, since=min(status["since"] for status in waiting))
    more, leniently = True, context.settings.reports == "lenient"
    while more:
        async with context.store.transaction() as tx:
            more = await rows.settle_unverified(tx, task.key, home, leniently=leniently)


def _transition(
    job: JobRow | None, report: CheckedReport, now: int, dispatched_at: int | None
) -> JobChange | None:
    """Return the columns of a job that begins or ends, None where it does neither; raises Conflict."""
    if job is None:
        return _first_change(report, now, dispatched_at)
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


def _is_other_leg(job: JobRow, report: CheckedReport) -> bool:
    """Whether a report is about another leg of a matrix than the last: both name their check run."""
    last, reported = job["check_run_id"], report.job["check_run_id"]
    return last is not None and reported is not None and last != reported


def _has_passed(conclusion: str | None, flags: Mapping[str, Any]) -> bool:
    return conclusion in PASSING and "no_conclusion" not in flags


def _first_change(report: CheckedReport, now: int, dispatched_at: int | None) -> JobChange:
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


def _completed(job: JobRow, report: CheckedReport, now: int, flags: dict[str, Any]) -> JobChange:
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


def _so_far(job: JobRow, report: CheckedReport, now: int) -> JobChange | None:
    """Return the tests of a running job so far, if a repeated report knows more than the last one."""
    running = job["status"] == report.job["status"] == "in_progress"
    more = (report.job["total_tests"] or 0) > (job["total_tests"] or 0)
    if not running or not more:
        return None
    claimed = cast("dict[str, Any]", report.job)
    tests = cast("JobChange", {name: claimed[name] for name in JobTests.__annotations__})
    return (
        {**_unchanged_columns(job), "flags": job["flags"] | report.flags, "updated_at": now}
        | _reported(report)
        | tests
    )


def _filled(job: JobRow, report: CheckedReport, now: int) -> JobChange | None:
    """Return the columns that were null and that a repeated report fills; others stay."""
    known = cast("dict[str, Any]", job)
    news = {name: value for name, value in _reported(report).items() if known[name] is None}
    if not news:
        return None
    change: JobChange = {**_unchanged_columns(job), "flags": job["flags"] | report.flags, "updated_at": now}
    return change | cast("JobChange", news)


def _unchanged_columns(job: JobRow) -> JobChange:
    """Return the columns that every change names, unchanged."""
    return {"status": job["status"], "conclusion": job["conclusion"], "flags": job["flags"]}


def _is_odd(job: JobRow | None, change: JobChange, now: int, dispatched_at: int | None) -> bool:
    """Whether the times that the backend has reported by now cannot be true."""
    before = (job["reported_started_at"], job["reported_completed_at"]) if job else (None, None)
    reported = visibility.ShownTimes(
        change.get("reported_started_at", before[0]), change.get("reported_completed_at", before[1])
    )
    return not visibility.are_times_possible(reported, now=now, dispatched_at=dispatched_at)


def _reported(report: CheckedReport) -> JobChange:
    """Return the columns a report has values for: absent ones erase nothing."""
    claimed = cast("dict[str, Any]", report.job)
    names = JobReported.__annotations__
    reported = {name: value for name in names if (value := claimed[name]) is not None}
    return cast("JobChange", reported)


def _seconds(start: int | None, end: int) -> float | None:
    return None if start is None else max(end - start, 0) / 1000


async def _from_delivery(
    context: Context, backend: str, run_id: str, attempt: int, tx: Transaction
) -> tuple[list[JobRow], int] | None:
    """Record the status from the run's own delivery; without one, return the waiting jobs and how long they wait."""
    waiting = await jobs.read_jobs_of_run(tx, backend, run_id)
    if not waiting:
        return None
    status_row = await runs.read_attempt_status(tx, backend, run_id, attempt)
    if status_row is None or status_row["status"] not in {"completed", "missing"}:
        return waiting, await _patience(tx, context, backend)
    if (conclusion := status_row["conclusion"]) and conclusion not in PASSING:
        await _finish_jobs(tx, [job for job in waiting if job["run_attempt"] == attempt], conclusion)
        await _begin_rerun(tx, waiting, run_id, attempt)
    await _request_publishing(tx, waiting)
    return None


async def _read_run(
    context: Context, run: tuple[str, str, int], *, age: int, over: bool, wait: float
) -> tuple[dict[str, Any] | None, str]:
    """Return the run, and the status to record when it has not ended in time; raises NotYet while there is time."""
    backend, run_id, attempt = run
    try:
        github_run = await _ask_for_run(context, backend, run_id, attempt)
    except GitHubRefused as error:
        missing = error.gone
        if not over and not (missing and age >= responses.YOUNG_FOR):
            raise NotYet(f"run {run_id} of {backend} cannot be read: {error}", after=wait) from error
        return None, "missing" if missing else "unreadable"
    except RetryLater as error:
        if not over:
            raise NotYet(str(error), after=error.after) from error  # its delivery may still arrive
        return None, "unconfirmed"
    return github_run, "unconfirmed" if github_run else "missing"


def _first_reported_at(waiting: list[JobRow], attempt: int) -> int:
    """Return when this attempt, or else the run, was first reported on."""
    here: list[int] = [job["received_at"] for job in waiting if job["run_attempt"] == attempt]
    anywhere: list[int] = [job["received_at"] for job in waiting]
    return min(here or anywhere)


async def _patience(tx: Transaction, context: Context, backend: str) -> int:
    """Return how many seconds a run may take to end."""
    allowlist = await versions.read_in_force(tx)
    entry = allowlist.find(backend) if allowlist else None
    return (entry.job_timeout if entry else None) or context.settings.job_timeout


async def _ask_for_run(context: Context, backend: str, run_id: str, attempt: int) -> dict[str, Any] | None:
    """Return the run from GitHub, None when its id cannot be one of GitHub's; raises GitHubRefused."""
    if not (run_id.isascii() and run_id.isdigit()):
        return None
    client = context.backend_github.client(backend, actions="read")
    url = client.path("actions/runs/{run}/attempts/{attempt}")
    run: dict[str, Any] = await client.getitem(url, {"run": run_id, "attempt": str(attempt)})
    return run


async def _finish_jobs(tx: Transaction, reported: list[JobRow], conclusion: str) -> None:
    """Finish jobs whose run ended without their report; a late report still counts."""
    for job in jobs.in_lock_order(reported):
        if job["status"] == "in_progress":
            await jobs.change_if_unchanged(tx, job, finish_unreported(job, now=tx.now, conclusion=conclusion))


async def _begin_rerun(tx: Transaction, waiting: list[JobRow], run_id: str, attempt: int) -> None:
    """Start a re-run that was requested during the run: by itself it asks GitHub only every two minutes."""
    dispatched = {job["dispatch_id"] for job in waiting if job["dispatch_id"]}
    for row in await runs.read_reruns(tx, dispatched):
        if (row["state"], row["run_id"], row["from_attempt"]) == ("asked", run_id, attempt):
            tx.enqueue("run_again", task_keys.rerun_key(row["dispatch_id"], attempt, run_id))


async def _request_publishing(tx: Transaction, waiting: list[JobRow]) -> None:
    for identifier in {job["dispatch_id"] for job in waiting}:
        dispatch = await dispatches.get_dispatch(tx, identifier)
        if dispatch:
            request_publish(tx, dispatch["upstream_repo"], dispatch["pr_number"])


async def _ask_for_commit(context: Context, sha: str, *, since: int) -> str | None:
    """Return the watched repository that has the commit, None if none has, or none could be asked for a day.

    Raises RetryLater when one could not be asked, `since` less than a day.
    """
    refusal: GitHubRefused | None = None
    for repo in context.settings.upstream_repo:
        try:
            if await _is_in(context, repo, sha, since=since):
                return repo
        except GitHubRefused as error:
            refusal = error
    # no access: that may be granted later, but reports do not wait forever
    if refusal is not None and context.clock.now() - since < VERIFY_PATIENCE:
        raise RetryLater(f"commit {sha} cannot be asked for: {refusal}", after=VERIFY_AGAIN) from refusal
    return None


async def _is_in(context: Context, repo: str, sha: str, *, since: int) -> bool:
    """Return whether a commit is on a repository's default branch or the head of a branch; raises GitHubRefused."""
    client = context.github.client(repo, since=since, contents="read")
    async with context.store.read() as tx:
        branch = await rows.read_default_branch(tx, repo)
    if branch is None:
        branch = (await client.repository())["default_branch"]
    try:
        url = client.path("compare/{basehead}{?per_page}")
        compared = await client.getitem(url, {"basehead": f"{branch}...{sha}", "per_page": "1"})
        if compared["status"] in ON_DEFAULT_BRANCH:
            return True
        heads = await client.getitem(client.path("commits/{sha}/branches-where-head"), {"sha": sha})
    except GitHubRefused as error:
        if not error.gone:
            raise
        return False
    return bool(heads)
