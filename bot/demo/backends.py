"""Simulated CIs of the backends: they answer dispatches with runs whose reports are sent for real."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from bot.core import files
from bot.core.clock import Clock, SystemClock
from bot.demo import job_logs, test_reports
from bot.demo.github.webhooks import BackgroundTasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.demo.github import Dispatch, Run, SimulatedGitHub, WorkflowJob
    from bot.demo.issuer import Issuer

AUDIENCE = "ootbot"
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
    audience: str


async def run_step(step: Step, issuer: Issuer, github_url: str) -> tuple[int, str]:
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
    inputs = {
        "INPUT_STATUS": step.status,
        "INPUT_DEADLINE": DEADLINE,
        "INPUT_AUDIENCE": step.audience,
    }
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
        *(sys.executable, "-E", "-s", "-B", str(files.report_script())),
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


PASSED = frozenset({"success", "skipped", "neutral"})


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """One job of a backend's workflow: its duration and its results."""

    name: str = "build"
    seconds: float = 0.0  # on the simulation's clock
    conclusion: str = "success"  # on GitHub
    reported: str | None = None  # conclusion in its report, if that differs
    counts: Counts = field(default_factory=Counts)
    failed_tests: tuple[FailedTest, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """One use of the reporting action: what it reported, and its outcome."""

    run_attempt: int
    job: str
    status: str  # in_progress | completed
    exit_code: int
    output: str
    at: int  # epoch milliseconds


@dataclass(kw_only=True, eq=False)
class Backend:
    """The CI of one out-of-tree repository, which runs the planned jobs."""

    github: SimulatedGitHub
    issuer: Issuer
    clock: Clock
    runners: asyncio.Event  # set while runners are free
    audience: str = AUDIENCE  # of the tokens its jobs report with
    silent: bool = False  # never starts a run
    steps: list[Step] = field(default_factory=list)  # in the order they began
    reports: list[Report] = field(default_factory=list)  # in the order they ended
    _plans: dict[tuple[str | None, int | None], Sequence[PlannedJob]] = field(default_factory=dict)
    _dispatches: dict[int, Dispatch] = field(default_factory=dict)  # by run id
    _failed: dict[int, set[str]] = field(default_factory=dict)  # run id -> failed jobs of its last attempt

    def plan(self, *jobs: PlannedJob, head: str | None = None, attempt: int | None = None) -> None:
        """Set the jobs of a run on this head and in this attempt; None stands for any."""
        self._plans[head, attempt] = jobs

    def planned(self, head: str, attempt: int) -> Sequence[PlannedJob]:
        """Return the jobs of the most specific plan; without a plan, one that succeeds."""
        for key in ((head, attempt), (head, None), (None, attempt), (None, None)):
            if key in self._plans:
                return self._plans[key]
        return (PlannedJob(),)

    async def dispatched(self, dispatch: Dispatch) -> None:
        """Run what a dispatch starts, to the end of the run."""
        action = dispatch.client_payload.get("payload", {}).get("action")
        if self.silent or action == "closed":
            return
        run = dispatch.run or await self.github.start_run(
            dispatch.repo,
            name=_workflow(dispatch),
            display_title=dispatch.event_type,
            actor=dispatch.app.bot_login,
        )
        self._dispatches[run.id] = dispatch
        await self._attempt(run, self.planned(_head(dispatch), run.run_attempt))

    async def rerun(self, run: Run, failed_only: bool) -> None:
        """Run all jobs or the failed ones again, as planned for this attempt."""
        if dispatch := self._dispatches.get(run.id):  # runs without a dispatch are not this CI's
            jobs = self.planned(_head(dispatch), run.run_attempt)
            failed = self._failed[run.id]
            await self._attempt(run, [job for job in jobs if not failed_only or job.name in failed])

    async def _attempt(self, run: Run, jobs: Sequence[PlannedJob]) -> None:
        """Run the jobs in parallel, then finish the run, which GitHub does after the last report."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._job(run, job)) for job in jobs]
        conclusions = {job.name: task.result() for job, task in zip(jobs, tasks, strict=True)}
        failed = {name: each for name, each in conclusions.items() if each not in PASSED}
        self._failed[run.id] = set(failed)
        worst = "failure" if set(failed.values()) - {"cancelled"} else "cancelled"
        await self.github.finish_run(run, worst if failed else "success")

    async def _job(self, run: Run, planned: PlannedJob) -> str:
        """Run one job and return its conclusion; a refused report fails the job."""
        job = await self.github.queue_job(run, planned.name)
        await self.runners.wait()
        if job.status == "completed":  # cancelled before a runner took it
            return job.conclusion or "failure"
        await self.github.begin_job(job)
        started = await self._report(job, planned, "in_progress")
        await self.clock.sleep(planned.seconds)
        finished = await self._report(job, planned, "completed")
        if planned.counts:
            device = run.repo.name.partition("-")[0]
            report = test_reports.junit(device, planned.failed_tests)
            self.github.add_artifact(run, f"test-reports_{job.id}", report)
        log = job_logs.job_log(planned.name, planned.failed_tests, ended_at=self.clock.now())
        await self.github.finish_job(job, planned.conclusion if started and finished else "failure", log=log)
        return job.conclusion or "failure"

    async def _report(self, job: WorkflowJob, planned: PlannedJob, status: str) -> bool:
        """Use the reporting action in a job and return whether it succeeded."""
        # A job cancelled in the meantime already has its conclusion.
        conclusion = job.conclusion or planned.reported or planned.conclusion
        step = Step(
            audience=self.audience,
            job=job,
            dispatch=self._dispatches[job.run.id],
            status=status,
            conclusion=conclusion if status == "completed" else "",
            counts=planned.counts,
            failed_tests=planned.failed_tests,
            at=self.clock.now(),
        )
        self.steps.append(step)
        exit_code, output = await run_step(step, self.issuer, self.github.url)
        report = Report(
            run_attempt=job.run_attempt,
            job=planned.name,
            status=status,
            exit_code=exit_code,
            output=output,
            at=self.clock.now(),
        )
        self.reports.append(report)
        return exit_code == 0


class Backends:
    """All backends of one simulated GitHub; passes each dispatch and re-run to its backend."""

    def __init__(
        self,
        github: SimulatedGitHub,
        issuer: Issuer,
        *,
        clock: Clock | None = None,
        audience: str = AUDIENCE,
    ) -> None:
        self._github = github
        self._issuer = issuer
        self._audience = audience
        self._clock = clock or SystemClock()
        self._backends: dict[str, Backend] = {}
        self._work = BackgroundTasks()
        self.runners = asyncio.Event()  # while cleared, jobs stay queued
        self.runners.set()
        github.on_dispatch = self._dispatched
        github.on_rerun = self._rerun

    def add(self, repo: str, *jobs: PlannedJob, silent: bool = False) -> Backend:
        """Add a CI to a repository; `jobs` is its default plan."""
        backend = Backend(
            github=self._github,
            issuer=self._issuer,
            clock=self._clock,
            runners=self.runners,
            audience=self._audience,
            silent=silent,
        )
        if jobs:
            backend.plan(*jobs)
        self._backends[repo.lower()] = backend
        return backend

    async def settled(self) -> None:
        """Return when every run started so far has ended; raise an error that occurred in one."""
        await self._work.settled()

    async def stop(self) -> None:
        """Cancel the runs in progress and wait for them to end."""
        await self._work.close()

    async def _dispatched(self, dispatch: Dispatch) -> None:
        if backend := self._backends.get(dispatch.repo.full_name.lower()):
            self._work.spawn(backend.dispatched(dispatch))

    async def _rerun(self, run: Run, failed_only: bool) -> None:
        if backend := self._backends.get(run.repo.full_name.lower()):
            self._work.spawn(backend.rerun(run, failed_only))


def _workflow(dispatch: Dispatch) -> str:
    """Return the workflow that a dispatch starts: a search runs what runs at night."""
    return "Nightly" if "bisect" in dispatch.client_payload else "CI"


def _head(dispatch: Dispatch) -> str:
    """Return the upstream commit that a dispatch names; empty when it names none."""
    event = dispatch.client_payload.get("payload", {})
    pull = event.get("pull_request") or {}
    return str(pull.get("head", {}).get("sha") or event.get("after") or "")
