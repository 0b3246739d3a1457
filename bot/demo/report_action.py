"""The reporting action in a simulated job: its real script, run as a process with a runner's environment."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from bot.core import package_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.demo.github import Dispatch, WorkflowJob
    from bot.demo.issuer import Issuer

DEADLINE = "60"  # seconds for which the script retries


class Counts(TypedDict, total=False):
    """Test results of a job."""

    passed: int
    failed: int
    skipped: int


class FailedTest(TypedDict):
    """A failed test as the reporting action takes it."""

    name: str
    classname: NotRequired[str]
    file: NotRequired[str]
    line: NotRequired[int]
    message: NotRequired[str]
    stacktrace: NotRequired[str]


@dataclass(frozen=True, kw_only=True)
class Step:
    """One use of the reporting action in a job: what it reports, and the dispatch that started the job."""

    job: WorkflowJob
    dispatch: Dispatch
    status: str  # in_progress | completed
    conclusion: str = ""
    counts: Counts
    failed_tests: Sequence[FailedTest]
    at: int  # epoch milliseconds


async def run(step: Step, issuer: Issuer, github_url: str) -> tuple[int, str]:
    """Run the step and return the script's exit code and output. The process never outlives this call."""
    with tempfile.TemporaryDirectory(prefix="ootbot-job-") as name:
        folder = Path(name)
        environment = _environment(step, folder, github_url)
        environment |= issuer.request_env(**_claims(step.job))
        environment |= _inputs(step, folder)
        return await _run_script(environment, folder)


def _environment(step: Step, folder: Path, github_url: str) -> dict[str, str]:
    """Return the environment variables of a job; write the event file that they name."""
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
    """Return the action's inputs as it passes them on; write the file of failed tests that they name."""
    inputs = {"INPUT_STATUS": step.status, "INPUT_DEADLINE": DEADLINE}
    if step.status == "completed":
        inputs["INPUT_CONCLUSION"] = step.conclusion
        inputs["INPUT_TEST_RESULTS"] = json.dumps(step.counts) if step.counts else ""
        if step.failed_tests:
            failed_tests = folder / "failed-tests.json"
            failed_tests.write_text(json.dumps(list(step.failed_tests)))
            inputs["INPUT_FAILED_TESTS"] = str(failed_tests)
    return inputs


def _claims(job: WorkflowJob) -> dict[str, Any]:
    """Return the claims that the issuer signs for a job."""
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
        *(sys.executable, "-E", "-s", "-B", str(package_files.report_script())),
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
