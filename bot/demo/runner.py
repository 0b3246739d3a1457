"""What does a runner give to a job that reports? The reporting action's own script, run as a process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot import shipped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.demo.github import Dispatch, WorkflowJob
    from bot.demo.issuer import Issuer

DEADLINE = "60"  # seconds that the script tries for


@dataclass(frozen=True, kw_only=True)
class Step:
    """One use of the reporting action in a job: what it is to say, and what set the job off."""

    job: WorkflowJob
    dispatch: Dispatch
    status: str  # in_progress | completed
    conclusion: str = ""
    counts: Mapping[str, int]  # passed, failed, skipped
    failed_tests: Sequence[Mapping[str, Any]]
    at: int  # epoch milliseconds


async def run(step: Step, issuer: Issuer, github_url: str) -> tuple[int, str]:
    """Run the step; returns the script's exit code and log. The process never outlives this call."""
    with tempfile.TemporaryDirectory(prefix="ootbot-job-") as name:
        folder = Path(name)
        environment = _environment(step, folder, github_url)
        environment |= issuer.request_env(**_claims(step.job))
        environment |= _inputs(step, folder)
        return await _run_script(environment, folder)


def _environment(step: Step, folder: Path, github_url: str) -> dict[str, str]:
    """Return what a runner gives to a job of this run; write the event file it names."""
    job, run = step.job, step.job.run
    event = {"action": step.dispatch.event_type, "client_payload": step.dispatch.client_payload}
    event_file = folder / "event.json"
    event_file.write_text(json.dumps(event))
    return {
        "PATH": os.defpath,
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": run.event,
        "GITHUB_EVENT_PATH": str(event_file),
        "GITHUB_JOB": job.name,
        "GITHUB_REPOSITORY": run.repo.full_name,
        "GITHUB_RUN_ATTEMPT": str(job.run_attempt),
        "GITHUB_RUN_ID": str(run.id),
        "GITHUB_SERVER_URL": github_url,
        "GITHUB_WORKFLOW": run.workflow.name,
        "JOB_CHECK_RUN_ID": str(job.check_run.id),
    }


def _inputs(step: Step, folder: Path) -> dict[str, str]:
    """Return the action's inputs as it passes them on; write the file of failed tests they name."""
    inputs = {"INPUT_STATUS": step.status, "INPUT_DEADLINE": DEADLINE}
    if step.status == "completed":
        inputs["INPUT_CONCLUSION"] = step.conclusion
        inputs["INPUT_TEST_RESULTS"] = json.dumps(dict(step.counts)) if step.counts else ""
        if step.failed_tests:
            failed_tests = folder / "failed-tests.json"
            failed_tests.write_text(json.dumps([dict(test) for test in step.failed_tests]))
            inputs["INPUT_FAILED_TESTS"] = str(failed_tests)
    return inputs


def _claims(job: WorkflowJob) -> dict[str, Any]:
    """Return what the issuer is to sign for a job."""
    run = job.run
    workflow = f"{run.repo.full_name}/{run.workflow.path}@refs/heads/{run.head_branch}"
    return {
        "repository": run.repo.full_name,
        "repository_id": run.repo.id,
        "run_id": run.id,
        "run_attempt": job.run_attempt,
        "check_run_id": str(job.check_run.id),
        "event_name": run.event,
        "ref": f"refs/heads/{run.head_branch}",
        "sha": run.head_sha,
        "workflow": run.workflow.name,
        "workflow_ref": workflow,
        "job_workflow_ref": workflow,
    }


async def _run_script(environment: dict[str, str], folder: Path) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-E", "-s", "-B", str(shipped.report_script())),
        cwd=folder,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        log, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    return process.returncode or 0, log.decode(errors="replace")
