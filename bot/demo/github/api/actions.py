"""How are workflow runs and jobs read, run again and cancelled?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.demo.github.api.call import ApiCall, Route, answer, counted
from bot.demo.github.refusals import Refused, missing
from bot.demo.github.shapes import actions as shapes
from bot.demo.github.times import within

if TYPE_CHECKING:
    from aiohttp import web

    from bot.demo.github.state import Run, WorkflowJob

RERUN_WITHIN = 30 * 24 * 3_600_000  # milliseconds
MOST_RERUNS = 50
FAILED = {"failure", "timed_out", "cancelled", "startup_failure", "action_required"}


async def list_runs(call: ApiCall) -> web.Response:
    """List runs, newest first."""
    wanted = {name: call.query(name) for name in ("event", "head_sha", "branch")}
    rows = [
        run
        for run in sorted(call.repo.runs.values(), key=lambda run: -run.id)
        if wanted["event"] in {"", run.event}
        and wanted["head_sha"] in {"", run.head_sha}
        and wanted["branch"] in {"", run.head_branch}
        and call.query("status") in {"", run.status, run.conclusion}
        and _created(run, call.query("created"))
    ]
    return counted(call, "workflow_runs", rows, shapes.run)


async def get_run(call: ApiCall) -> web.Response:
    """Show a run at its newest attempt."""
    return answer(shapes.run(call.world, _run(call)))


async def get_attempt(call: ApiCall) -> web.Response:
    """Show a run as it was at one attempt."""
    run, number = _run(call), call.number("attempt")
    if number == run.run_attempt:
        return answer(shapes.run(call.world, run))
    if not 0 < number < run.run_attempt:
        raise missing()
    return answer(run.attempts[number - 1])


async def list_jobs(call: ApiCall) -> web.Response:
    """List a run's jobs: the newest of each name, or those of all attempts."""
    run = _run(call)
    rows = _jobs(run) if call.query("filter") == "all" else _latest(run)
    return counted(call, "jobs", rows, shapes.job)


async def attempt_jobs(call: ApiCall) -> web.Response:
    """List the jobs of one attempt."""
    number = call.number("attempt")
    rows = [job for job in _jobs(_run(call)) if job.run_attempt == number]
    return counted(call, "jobs", rows, shapes.job)


async def get_job(call: ApiCall) -> web.Response:
    """Show one job."""
    job = call.repo.jobs.get(call.number("job"))
    if job is None:
        raise missing()
    return answer(shapes.job(call.world, job))


async def rerun(call: ApiCall) -> web.Response:
    """Run everything again."""
    return _again(call, failed_only=False)


async def rerun_failed(call: ApiCall) -> web.Response:
    """Run again what failed."""
    return _again(call, failed_only=True)


async def cancel(call: ApiCall) -> web.Response:
    """Stop a run, soon."""
    run = _run(call)
    if run.status == "completed":
        raise Refused(409, "Cannot cancel a workflow run that is completed.")
    call.later(lambda: call.pipelines.cancelled(run))
    return answer({}, 202)


def _again(call: ApiCall, *, failed_only: bool) -> web.Response:
    run = _run(call)
    if call.now - run.created_at > RERUN_WITHIN:
        raise Refused(403, "Unable to retry this workflow run: it was created over a month ago")
    if run.status != "completed":
        raise Refused(403, "This workflow is already running")
    if run.run_attempt > MOST_RERUNS:
        raise Refused(403, f"This workflow run was retried {MOST_RERUNS} times already")
    if failed_only and not any(job.conclusion in FAILED for job in _latest(run)):
        raise Refused(403, "This workflow run cannot be retried: it has no failed jobs")
    call.pipelines.begin_attempt(run)
    call.later(lambda: call.pipelines.rerun_requested(run, failed_only=failed_only))
    return answer({}, 201)


def _run(call: ApiCall) -> Run:
    run = call.repo.runs.get(call.number("run"))
    if run is None:
        raise missing()
    return run


def _jobs(run: Run) -> list[WorkflowJob]:
    return [job for job in run.repo.jobs.values() if job.run is run]


def _latest(run: Run) -> list[WorkflowJob]:
    return list({job.name: job for job in _jobs(run)}.values())


def _created(run: Run, wanted: str) -> bool:
    try:
        return not wanted or within(run.created_at, wanted)
    except (ValueError, KeyError):
        raise Refused(422, f"created: {wanted} is not a date range") from None


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
    Route(method="POST", path=RUN + "/rerun", handler=rerun, needs=WRITE),
    Route(method="POST", path=RUN + "/rerun-failed-jobs", handler=rerun_failed, needs=WRITE),
    Route(method="POST", path=RUN + "/cancel", handler=cancel, needs=WRITE),
)
