"""What do the backends of the demo answer to a dispatch? Simulated CIs that report for real.

Each runs the reporting action's own script as a process, in the environment a runner would give it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.clock import Clock, SystemClock
from bot.demo.github.background import Background

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.demo.github import Dispatch, Run, SimulatedGitHub, WorkflowJob
    from bot.demo.issuer import Issuer

REPORT_SCRIPT = Path(__file__).parents[2] / "actions" / "report" / "report.py"
PASSED = frozenset({"success", "skipped", "neutral"})


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """One job of a backend's workflow: how long it takes and what comes out of it."""

    name: str = "build"
    seconds: float = 0.0  # of the simulation's clock
    conclusion: str = "success"  # what GitHub says of it
    reported: str | None = None  # what it tells the bot, when that is not the truth
    counts: Mapping[str, int] = field(default_factory=dict)  # passed, failed, skipped
    failed_tests: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """One use of the reporting action: what it was to say and how it went."""

    run_attempt: int
    job: str
    status: str  # in_progress | completed
    exit_code: int
    output: str


@dataclass(kw_only=True, eq=False)
class Backend:
    """The CI of one out-of-tree repository, which does what it was planned to do."""

    github: SimulatedGitHub
    issuer: Issuer
    clock: Clock
    silent: bool = False  # never starts anything
    reports: list[Report] = field(default_factory=list)  # in the order they ended
    _plans: dict[tuple[str | None, int | None], Sequence[PlannedJob]] = field(default_factory=dict)
    _dispatches: dict[int, Dispatch] = field(default_factory=dict)  # run id -> what started it
    _failed: dict[int, set[str]] = field(default_factory=dict)  # run id -> jobs of its last attempt

    def plan(self, *jobs: PlannedJob, head: str | None = None, attempt: int | None = None) -> None:
        """Say which jobs a run has, on this head and in this attempt; None: on any, in any."""
        self._plans[head, attempt] = jobs

    def planned(self, head: str, attempt: int) -> Sequence[PlannedJob]:
        """Return the jobs of the most exact plan; without any plan, one that succeeds."""
        for key in ((head, attempt), (head, None), (None, attempt), (None, None)):
            if key in self._plans:
                return self._plans[key]
        return (PlannedJob(),)

    async def dispatched(self, dispatch: Dispatch) -> None:
        """Do everything that a dispatch sets off, to the end of the run."""
        action = dispatch.client_payload.get("payload", {}).get("action")
        if self.silent or action == "closed":
            return
        run = dispatch.run or await self.github.start_run(
            dispatch.repo, name="CI", display_title=dispatch.event_type
        )
        self._dispatches[run.id] = dispatch
        await self._attempt(run, self.planned(_head(dispatch), run.run_attempt))

    async def rerun(self, run: Run, failed_only: bool) -> None:
        """Do the jobs again, all of them or those that failed, as planned for this attempt."""
        if dispatch := self._dispatches.get(run.id):  # other runs are not of our making
            jobs = self.planned(_head(dispatch), run.run_attempt)
            failed = self._failed[run.id]
            await self._attempt(run, [job for job in jobs if not failed_only or job.name in failed])

    async def _attempt(self, run: Run, jobs: Sequence[PlannedJob]) -> None:
        """Run the jobs side by side, then finish the run: GitHub does so after the last report."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._job(run, job)) for job in jobs]
        said = {job.name: task.result() for job, task in zip(jobs, tasks, strict=True)}
        failed = {name: each for name, each in said.items() if each not in PASSED}
        self._failed[run.id] = set(failed)
        worst = "failure" if set(failed.values()) - {"cancelled"} else "cancelled"
        await self.github.finish_run(run, worst if failed else "success")

    async def _job(self, run: Run, planned: PlannedJob) -> str:
        """Run one job and return its conclusion; a report that was refused fails the job, too."""
        job = await self.github.start_job(run, planned.name)
        started = await self._report(job, planned, "in_progress")
        await self.clock.sleep(planned.seconds)
        finished = await self._report(job, planned, "completed")
        await self.github.finish_job(job, planned.conclusion if started and finished else "failure")
        return job.conclusion or "failure"

    async def _report(self, job: WorkflowJob, planned: PlannedJob, status: str) -> bool:
        """Use the reporting action in a job and return whether it succeeded."""
        with tempfile.TemporaryDirectory(prefix="ootbot-job-") as name:
            folder = Path(name)
            environment = self._environment(job, folder) | _inputs(job, planned, status, folder)
            exit_code, output = await _run_script(environment, folder)
        report = Report(
            run_attempt=job.run_attempt,
            job=planned.name,
            status=status,
            exit_code=exit_code,
            output=output,
        )
        self.reports.append(report)
        return exit_code == 0

    def _environment(self, job: WorkflowJob, folder: Path) -> dict[str, str]:
        """Return what a runner gives to a job of this run; write the event file it names."""
        run = job.run
        dispatch = self._dispatches[run.id]
        event = {"action": dispatch.event_type, "client_payload": dispatch.client_payload}
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
            "GITHUB_SERVER_URL": self.github.url,
            "GITHUB_WORKFLOW": run.workflow.name,
            "JOB_CHECK_RUN_ID": str(job.check_run.id),
            **self.issuer.request_env(**_claims(job)),
        }


class Backends:
    """All backends of one simulated GitHub; hands each dispatch and re-run to the one it is for."""

    def __init__(
        self, github: SimulatedGitHub, issuer: Issuer, *, clock: Clock | None = None
    ) -> None:
        self._github = github
        self._issuer = issuer
        self._clock = clock or SystemClock()
        self._backends: dict[str, Backend] = {}
        self._work = Background()
        github.on_dispatch = self._dispatched
        github.on_rerun = self._rerun

    def add(self, repo: str, *jobs: PlannedJob, silent: bool = False) -> Backend:
        """Give a repository a CI; `jobs` are its plan wherever no other is made."""
        backend = Backend(
            github=self._github, issuer=self._issuer, clock=self._clock, silent=silent
        )
        if jobs:
            backend.plan(*jobs)
        self._backends[repo.lower()] = backend
        return backend

    async def settled(self) -> None:
        """Return when every run begun so far is over; raise what went wrong in one."""
        await self._work.settled()

    async def stop(self) -> None:
        """Cancel the runs still under way and wait until they are gone."""
        await self._work.close()

    async def _dispatched(self, dispatch: Dispatch) -> None:
        if backend := self._backends.get(dispatch.repo.full_name.lower()):
            self._work.spawn(backend.dispatched(dispatch))

    async def _rerun(self, run: Run, failed_only: bool) -> None:
        if backend := self._backends.get(run.repo.full_name.lower()):
            self._work.spawn(backend.rerun(run, failed_only))


def _head(dispatch: Dispatch) -> str:
    """Return the upstream commit a dispatch is about; empty when it names none."""
    event = dispatch.client_payload.get("payload", {})
    pull = event.get("pull_request") or {}
    return str(pull.get("head", {}).get("sha") or event.get("after") or "")


def _inputs(job: WorkflowJob, planned: PlannedJob, status: str, folder: Path) -> dict[str, str]:
    """Return the action's inputs as it passes them on; write the file of failed tests they name."""
    inputs = {"INPUT_STATUS": status, "INPUT_DEADLINE": "60"}
    if status == "completed":
        # A job that was cancelled meanwhile has its conclusion already.
        inputs["INPUT_CONCLUSION"] = job.conclusion or planned.reported or planned.conclusion
        inputs["INPUT_TEST_RESULTS"] = json.dumps(dict(planned.counts)) if planned.counts else ""
        if planned.failed_tests:
            failed_tests = folder / "failed-tests.json"
            failed_tests.write_text(json.dumps([dict(test) for test in planned.failed_tests]))
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
    """Run the reporting script and return its exit code and log; it never outlives this call."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-E", "-s", "-B", str(REPORT_SCRIPT)),
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
