"""The step of the scenario in which upstream's own CI fails as the blocking backend did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.demo import job_logs, participants
from bot.demo.participants import MATMUL, TPU

if TYPE_CHECKING:
    from bot.demo.environment import Environment
    from bot.demo.scenario import Scenario


async def fail(scenario: Scenario) -> int:
    """Let a job of upstream's own CI fail, and wait until the bot has collected what it left; returns the job's id."""
    environment = scenario.environment
    github = environment.github
    run = await github.start_run(
        participants.UPSTREAM, event="pull_request", name="pull", head_sha=scenario.pull.head_sha
    )
    job = await github.start_job(run, participants.OWN_JOB, ("linux.4xlarge",))
    github.add_artifact(run, f"test-reports_{job.id}", {"junit.xml": participants.JUNIT})
    await github.finish_job(
        job, "failure", log=job_logs.of_job("test", (MATMUL,), ended_at=github.state.now())
    )
    await github.finish_run(run, "failure")
    await scenario.expect(
        "upstream's own failed run is collected, too", lambda: _was_listed(environment, run.id)
    )
    await scenario.expect("with its log", lambda: _log_was_fetched(environment, job.id))
    theirs = [each for each in github.state.repo(TPU).jobs.values() if each.conclusion == "failure"]
    await scenario.expect(
        "and the logs of the backend's jobs that failed in the same way",
        lambda: all(_log_was_fetched(environment, each.id) for each in theirs),
    )
    return job.id


def _was_listed(environment: Environment, run_id: int) -> bool:
    path = f"/repos/{participants.UPSTREAM}/actions/runs/{run_id}/artifacts"
    return any(call.path == path for call in environment.github.calls)


def _log_was_fetched(environment: Environment, job_id: int) -> bool:
    requests = environment.github.blob_host.requests
    return any(request.path == f"/blobs/logs/{job_id}.txt" for request in requests)
