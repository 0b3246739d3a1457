"""Endpoints of workflow runs and jobs: read, re-run, cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.demo.github.api.call import ApiCall, Route, json_response, paginated_with_total
from bot.demo.github.faults import ApiError, not_found
from bot.demo.github.serializers import actions as serializers
from bot.demo.github.times import within

if TYPE_CHECKING:
    from aiohttp import web

    from bot.demo.github.models import Run, WorkflowJob

RERUN_WITHIN = 30 * 24 * 3_600_000  # milliseconds
MAX_RERUNS = 50
FAILED = {"failure", "timed_out", "cancelled", "startup_failure", "action_required"}


async def list_runs(call: ApiCall) -> web.Response:
    """List runs, newest first."""
    filters = {name: call.query(name) for name in ("event", "head_sha", "branch")}
    rows = [
        run
        for run in sorted(call.repo.runs.values(), key=lambda run: -run.id)
        if filters["event"] in {"", run.event}
        and filters["head_sha"] in {"", run.head_sha}
        and filters["branch"] in {"", run.head_branch}
        and call.query("status") in {"", run.status, run.conclusion}
        and _created_within(run, call.query("created"))
    ]
    return paginated_with_total(call, "workflow_runs", rows, serializers.serialize_run)


async def get_run(call: ApiCall) -> web.Response:
    """Show a run at its newest attempt."""
    return json_response(serializers.serialize_run(call.state, _find_run(call)))


async def get_attempt(call: ApiCall) -> web.Response:
    """Show a run as it was at one attempt."""
    run, number = _find_run(call), call.path_number("attempt")
    if number == run.run_attempt:
        return json_response(serializers.serialize_run(call.state, run))
    if not 0 < number < run.run_attempt:
        raise not_found()
    return json_response(run.attempts[number - 1])


async def list_jobs(call: ApiCall) -> web.Response:
    """List a run's jobs: the newest of each name, or all attempts."""
    run = _find_run(call)
    rows = _jobs(run) if call.query("filter") == "all" else _latest(run)
    return paginated_with_total(call, "jobs", rows, serializers.job)


async def attempt_jobs(call: ApiCall) -> web.Response:
    """List the jobs of one attempt."""
    number = call.path_number("attempt")
    rows = [job for job in _jobs(_find_run(call)) if job.run_attempt == number]
    return paginated_with_total(call, "jobs", rows, serializers.job)


async def get_job(call: ApiCall) -> web.Response:
    """Show one job."""
    job = call.repo.jobs.get(call.path_number("job"))
    if job is None:
        raise not_found()
    return json_response(serializers.job(call.state, job))


async def rerun(call: ApiCall) -> web.Response:
    """Re-run all jobs."""
    return _rerun(call, failed_only=False)


async def rerun_failed(call: ApiCall) -> web.Response:
    """Re-run the failed jobs."""
    return _rerun(call, failed_only=True)


async def rerun_job(call: ApiCall) -> web.Response:
    """Re-run the run of a job; GitHub re-runs this job, and those that need it."""
    job = call.repo.jobs.get(call.path_number("job"))
    if job is None:
        raise not_found()
    return _rerun_run(call, job.run, failed_only=False)


async def cancel(call: ApiCall) -> web.Response:
    """Cancel a run, after the response."""
    run = _find_run(call)
    if run.status == "completed":
        raise ApiError(409, "Cannot cancel a workflow run that is completed.")
    call.after_response(lambda: call.workflows.cancelled(run))
    return json_response({}, 202)


def _rerun(call: ApiCall, *, failed_only: bool) -> web.Response:
    return _rerun_run(call, _find_run(call), failed_only=failed_only)


def _rerun_run(call: ApiCall, run: Run, *, failed_only: bool) -> web.Response:
    if call.now - run.created_at > RERUN_WITHIN:
        raise ApiError(403, "Unable to retry this workflow run: it was created over a month ago")
    if run.status != "completed":
        raise ApiError(403, "This workflow is already running")
    if run.run_attempt > MAX_RERUNS:
        raise ApiError(403, f"This workflow run was retried {MAX_RERUNS} times already")
    if failed_only and not any(job.conclusion in FAILED for job in _latest(run)):
        raise ApiError(403, "This workflow run cannot be retried: it has no failed jobs")
    call.workflows.begin_attempt(run)
    call.after_response(lambda: call.workflows.rerun_requested(run, failed_only=failed_only))
    return json_response({}, 201)


def _find_run(call: ApiCall) -> Run:
    run = call.repo.runs.get(call.path_number("run"))
    if run is None:
        raise not_found()
    return run


def _jobs(run: Run) -> list[WorkflowJob]:
    return [job for job in run.repo.jobs.values() if job.run is run]


def _latest(run: Run) -> list[WorkflowJob]:
    return list({job.name: job for job in _jobs(run)}.values())


def _created_within(run: Run, search: str) -> bool:
    try:
        return not search or within(run.created_at, search)
    except (ValueError, KeyError):
        raise ApiError(422, f"created: {search} is not a date range") from None


ACTIONS = "/repos/{owner}/{repo}/actions"
RUN = ACTIONS + "/runs/{run}"
READ, WRITE = ("actions:read",), ("actions:write",)
ROUTES = (
    Route(method="GET", path=ACTIONS + "/runs", handler=list_runs, needs=READ),
    Route(method="GET", path=RUN, handler=get_run, needs=READ),
    Route(method="GET", path=RUN + "/attempts/{attempt}", handler=get_attempt, needs=READ),
    Route(method="GET", path=RUN + "/attempts/{attempt}/jobs", handler=attempt_jobs, needs=READ),
    Route(method="GET", path=RUN + "/jobs", handler=list_jobs, needs=READ),
    Route(method="GET", path=ACTIONS + "/jobs/{job}", handler=get_job, needs=READ),
    Route(method="POST", path=ACTIONS + "/jobs/{job}/rerun", handler=rerun_job, needs=WRITE),
    Route(method="POST", path=RUN + "/rerun", handler=rerun, needs=WRITE),
    Route(method="POST", path=RUN + "/rerun-failed-jobs", handler=rerun_failed, needs=WRITE),
    Route(method="POST", path=RUN + "/cancel", handler=cancel, needs=WRITE),
)
