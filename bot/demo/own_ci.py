"""The step of the scenario in which upstream's own CI fails as the blocking backend did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.demo import job_logs, participants, test_reports, usage_logs
from bot.demo.github import payloads
from bot.demo.participants import MATMUL, TPU

MEASURED = usage_logs.LENGTH * 1000  # milliseconds

if TYPE_CHECKING:
    from bot.demo.environment import Environment
    from bot.demo.github.models import Artifact
    from bot.demo.scenario import Scenario


async def fail(scenario: Scenario) -> int:
    """Let a job of upstream's own CI fail, and wait until the bot has collected what it left; returns the job's id."""
    environment = scenario.environment
    github = environment.github
    run = await github.start_run(
        participants.UPSTREAM, event="pull_request", name="pull", head_sha=scenario.pull.head_sha
    )
    job = await github.start_job(run, participants.OWN_JOB, ("linux.g5.4xlarge",))
    other = await github.start_job(run, participants.OWN_JOB.replace("1, 2", "2, 2"), ("linux.g5.4xlarge",))
    await github.finish_job(other, "success")
    github.add_artifact(run, f"test-reports_{job.id}", test_reports.junit("cuda", (MATMUL,)))
    await github.finish_job(
        job, "failure", log=job_logs.job_log("test", (MATMUL,), ended_at=github.state.now())
    )
    await github.finish_run(run, "failure")
    await scenario.expect(
        "upstream's own failed run is collected, too", lambda: _was_listed(environment, run.id)
    )
    await scenario.expect("with its log", lambda: _log_was_fetched(environment, job.id))
    theirs = {step.job for step in environment.backends[TPU].steps if step.job.conclusion == "failure"}
    await scenario.expect(
        "and the logs of the backend's jobs that failed in the same way",
        lambda: all(_log_was_fetched(environment, each.id) for each in theirs),
    )
    await scenario.expect(
        "the comment says where each test fails, and that upstream passes some of them",
        lambda: scenario.comment_has(
            "fails on npu and tpu, passes upstream (cuda)", "fails upstream too (cuda)"
        ),
    )
    return job.id


async def disable(scenario: Scenario) -> None:
    """Let issues disable a test on two platforms and allow a job to fail; one of a stranger changes nothing."""
    github = scenario.environment.github
    upstream, stranger = participants.UPSTREAM, participants.AUTHOR
    await github.open_issue(upstream, f"DISABLED {participants.DISABLED_TEST}", "Platforms: npu, linux")
    await github.open_issue(upstream, "UNSTABLE nightly / win-vs2022 / test (default)")
    await github.open_issue(upstream, "DISABLED test_add (__main__.TestMath)", by=stranger)
    asked = f"/repos/{upstream}/collaborators/{stranger}/permission"
    await scenario.expect(
        "GitHub is asked who may disable tests",
        lambda: any(call.path == asked for call in github.calls),
    )


async def flake(scenario: Scenario) -> None:
    """Let a test be flaky in three jobs of a periodic run: enough for a suggestion to disable it."""
    environment = scenario.environment
    github, left = environment.github, []
    run = await github.start_run(participants.UPSTREAM, event="schedule", name="periodic")
    for shard in (1, 2, 3):
        name = participants.OWN_JOB.replace("default, 1, 2", f"slow, {shard}, 3")
        job = await github.start_job(run, name, ("linux.g5.4xlarge",))
        reports = test_reports.junit("cuda", flaky=(test_reports.FLAKY,))
        left.append(github.add_artifact(run, f"test-reports_{job.id}", reports))
        await github.finish_job(job, "success")
    await github.finish_run(run, "success")
    await scenario.expect(
        "the test reports of a periodic run are collected", lambda: _were_fetched(environment, left)
    )


async def measure(scenario: Scenario) -> list[int]:
    """Let jobs on machines with accelerators leave usage logs, and wait until they are collected; returns their ids.

    One is of the pull request, one of a push to the default branch: two hours each, which end now.
    """
    environment = scenario.environment
    github, now = environment.github, environment.github.state.now()
    found = []
    for number, event in enumerate(("pull_request", "push"), 1):
        head = scenario.pull.head_sha if event == "pull_request" else None
        run = await github.start_run(participants.UPSTREAM, event=event, name="npu", head_sha=head)
        run.started_at = run.created_at = now - MEASURED
        job = github.past_job(
            run,
            participants.MEASURED_JOB,
            (participants.MEASURED_LABEL,),
            conclusion="success",
            times=(now - MEASURED - 60_000, now - MEASURED, now),
        )
        log = usage_logs.usage_log(job.name, start_at=(now - MEASURED) // 1000, seed=number)
        github.add_artifact(run, f"usage-log-runattempt1-{job.id}.zip", {"usage_log.txt": log})
        await github.emit(payloads.workflow_job(github.state, job, "completed"))
        await github.finish_run(run, "success")
        found.append(job.id)
    await scenario.expect(
        "what the machine did while a job ran is collected", lambda: _usage_was_fetched(environment, found)
    )
    return found


def _usage_was_fetched(environment: Environment, jobs: list[int]) -> bool:
    kept = environment.github.state.repo(participants.UPSTREAM).artifacts.values()
    logs = [one for one in kept if one.name.startswith("usage-log")]
    return len(logs) >= len(jobs) and _were_fetched(environment, logs)


def _were_fetched(environment: Environment, artifacts: list[Artifact]) -> bool:
    fetched = {request.path for request in environment.github.blob_host.requests}
    return all(f"/blobs/artifacts/{one.id}.zip" in fetched for one in artifacts)


def _was_listed(environment: Environment, run_id: int) -> bool:
    path = f"/repos/{participants.UPSTREAM}/actions/runs/{run_id}/artifacts"
    return any(call.path == path for call in environment.github.calls)


def _log_was_fetched(environment: Environment, job_id: int) -> bool:
    requests = environment.github.blob_host.requests
    return any(request.path == f"/blobs/logs/{job_id}.txt" for request in requests)
