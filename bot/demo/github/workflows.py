"""Workflow runs and jobs: every change of status is followed by its webhooks."""

from __future__ import annotations

import hashlib
import io
import zipfile
from typing import TYPE_CHECKING

from bot.demo.github import payloads
from bot.demo.github.blob_host import BlobHost
from bot.demo.github.models import Artifact, CheckRun, Run, WorkflowJob
from bot.demo.github.serializers import actions
from bot.demo.github.serializers.repository import html_of
from bot.demo.github.state import GitHubBase
from bot.demo.github.times import iso

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from bot.core.clock import Clock
    from bot.demo.github.models import Dispatch, Repo, Workflow

RETENTION = 90 * 24 * 3_600_000  # milliseconds an artifact is kept, unless its run says otherwise


class Workflows(GitHubBase):
    """GitHub Actions, as far as its runs and jobs are visible from outside.

    `on_dispatch` and `on_rerun` are callbacks for a backend's CI. They are called after the API has answered, with
    the dispatch, or with the run and whether only its failed jobs shall run again.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self.blob_host = BlobHost(self.state, self.faults.take)
        self.on_dispatch: Callable[[Dispatch], Awaitable[None]] | None = None
        self.on_rerun: Callable[[Run, bool], Awaitable[None]] | None = None

    async def start_run(
        self,
        repo: Repo | str,
        *,
        event: str = "repository_dispatch",
        name: str = "CI",
        display_title: str | None = None,
        head_sha: str | None = None,
        actor: str = "octocat",
        head_branch: str | None = None,
        head_repo: Repo | None = None,
    ) -> Run:
        """Start a run; its commit may be a fork's."""
        run = self.queued_run(
            self.state.repo(repo),
            workflow=self.state.workflow(self.state.repo(repo), name),
            event=event,
            display_title=display_title,
            head_sha=head_sha,
            actor=actor,
        )
        run.head_branch, run.head_repo = head_branch or run.head_branch, head_repo
        await self.emit(payloads.workflow_run(self.state, run, "requested"))
        await self._begin(run)
        return run

    async def start_job(self, run: Run, name: str, labels: Sequence[str] = ("ubuntu-latest",)) -> WorkflowJob:
        """Queue a job and start it at once."""
        job = await self.queue_job(run, name, labels)
        await self.begin_job(job)
        return job

    async def queue_job(self, run: Run, name: str, labels: Sequence[str] = ("ubuntu-latest",)) -> WorkflowJob:
        """Queue a job; the first job of a queued run starts the run."""
        await self._begin(run)
        now = self.state.now()
        check_run = self._new_check_run(run, name)
        job = WorkflowJob(
            id=check_run.id,
            run=run,
            check_run=check_run,
            name=name,
            labels=tuple(labels),
            run_attempt=run.run_attempt,
            created_at=now,
            started_at=now,
        )
        run.repo.jobs[job.id] = job
        await self.emit(
            payloads.workflow_job(self.state, job, "queued"),
            payloads.check_run(self.state, check_run, "created", run.actor.login),
        )
        return job

    def past_job(
        self,
        run: Run,
        name: str,
        labels: Sequence[str],
        *,
        conclusion: str | None,
        times: tuple[int, int, int | None],
        log: str | None = None,
    ) -> WorkflowJob:
        """Create a job as it was created, started and ended then (epoch milliseconds), without sending webhooks."""
        check_run = self._new_check_run(run, name)
        created, started, completed = times
        check_run.status, check_run.conclusion = "completed" if conclusion else "in_progress", conclusion
        check_run.started_at, check_run.completed_at = started, completed
        job = WorkflowJob(
            id=check_run.id,
            run=run,
            check_run=check_run,
            name=name,
            labels=tuple(labels),
            run_attempt=run.run_attempt,
            created_at=created,
            started_at=started,
            status=check_run.status,
            conclusion=conclusion,
            completed_at=completed,
            runner="GitHub Actions 6",
            log=log.encode() if log else None,
        )
        run.repo.jobs[job.id] = job
        return job

    async def begin_job(self, job: WorkflowJob) -> None:
        """Start a queued job."""
        job.status = job.check_run.status = "in_progress"
        job.runner, job.started_at = "GitHub Actions 6", self.state.now()
        job.check_run.started_at = job.started_at
        await self.emit(payloads.workflow_job(self.state, job, "in_progress"))

    async def finish_job(self, job: WorkflowJob, conclusion: str, *, log: str | bytes | None = None) -> None:
        """Complete a job; one that is completed already, such as in a cancelled run, stays as it is."""
        if job.status == "completed":
            return
        job.log = log.encode() if isinstance(log, str) else log
        job.status, job.conclusion, job.completed_at = "completed", conclusion, self.state.now()
        check_run = job.check_run
        check_run.status, check_run.conclusion = "completed", conclusion
        check_run.completed_at = job.completed_at
        await self.emit(
            payloads.workflow_job(self.state, job, "completed"),
            payloads.check_run(self.state, check_run, "completed", job.run.actor.login),
        )

    async def finish_run(self, run: Run, conclusion: str) -> None:
        """Complete a run; one that is completed already stays as it is."""
        if run.status == "completed":
            return
        run.status, run.conclusion, run.updated_at = "completed", conclusion, self.state.now()
        await self.emit(
            payloads.workflow_run(self.state, run, "completed"),
            payloads.check_suite(self.state, run.suite, "completed", run.actor.login),
        )

    def add_artifact(
        self,
        run: Run,
        name: str,
        content: bytes | Mapping[str, bytes],
        *,
        retention: int = RETENTION,
    ) -> Artifact:
        """Upload an artifact, as a run's job does: an archive, or the members to make one of."""
        archive = content if isinstance(content, bytes) else zipped(content)
        artifact = Artifact(
            id=self.state.new_id(),
            run=run,
            name=name,
            content=archive,
            digest=f"sha256:{hashlib.sha256(archive).hexdigest()}",
            created_at=self.state.now(),
            expires_at=self.state.now() + retention,
        )
        run.repo.artifacts[artifact.id] = artifact
        return artifact

    def queued_run(
        self,
        repo: Repo,
        *,
        workflow: Workflow,
        event: str,
        display_title: str | None = None,
        head_sha: str | None = None,
        actor: str,
    ) -> Run:
        """Create a queued run, without sending webhooks."""
        now, sha = self.state.now(), head_sha or repo.branches[repo.default_branch]
        earlier = sum(each.workflow is workflow for each in repo.runs.values())
        run = Run(
            id=self.state.new_id(),
            repo=repo,
            workflow=workflow,
            suite=self.state.new_suite(repo, self.state.actions_app, sha),
            event=event,
            display_title=display_title or event,
            head_sha=sha,
            head_branch=repo.default_branch,
            actor=self.state.user(actor),
            run_number=1 + earlier,
            created_at=now,
            started_at=now,
            updated_at=now,
        )
        repo.runs[run.id] = run
        return run

    def begin_attempt(self, run: Run) -> None:
        """Archive the current attempt and queue the next one."""
        run.attempts.append(actions.serialize_run(self.state, run))
        run.run_attempt += 1
        run.status, run.conclusion = "queued", None
        run.started_at = run.updated_at = self.state.now()

    async def dispatched(self, dispatch: Dispatch) -> None:
        """Do what an accepted dispatch causes."""
        if dispatch.run:
            await self.emit(payloads.workflow_run(self.state, dispatch.run, "requested"))
        if self.on_dispatch:
            await self.on_dispatch(dispatch)

    async def rerun_requested(self, run: Run, *, failed_only: bool) -> None:
        """Do what an accepted re-run causes. GitHub sends no `requested` for it."""
        if self.on_rerun:
            await self.on_rerun(run, failed_only)

    async def cancelled(self, run: Run) -> None:
        """Cancel the unfinished jobs of a run, then the run."""
        for job in list(run.repo.jobs.values()):
            if job.run is run:
                await self.finish_job(job, "cancelled")
        await self.finish_run(run, "cancelled")

    async def _begin(self, run: Run) -> None:
        if run.status == "queued":
            run.status, run.updated_at = "in_progress", self.state.now()
            await self.emit(payloads.workflow_run(self.state, run, "in_progress"))

    def _new_check_run(self, run: Run, name: str) -> CheckRun:
        number = self.state.new_id()
        check_run = CheckRun(
            id=number,
            repo=run.repo,
            app=self.state.actions_app,
            suite=run.suite,
            name=name,
            head_sha=run.head_sha,
            status="queued",
            details_url=f"{html_of(self.state, run.repo)}/actions/runs/{run.id}/job/{number}",
            started_at=self.state.now(),
        )
        run.repo.check_runs[number] = check_run
        return check_run

    def latest_jobs(self, run: Run) -> list[WorkflowJob]:
        """Return the newest job of each name in a run."""
        return list({each.name: each for each in run.repo.jobs.values() if each.run is run}.values())


def zipped(members: Mapping[str, bytes]) -> bytes:
    """Return an archive of some members."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return written.getvalue()


def log_of(job: WorkflowJob) -> bytes:
    """Return a finished job's log; without one of its own, a few lines as the runner writes them."""
    if job.log is not None:
        return job.log
    at = (iso(job.started_at) or "").replace("Z", ".0000000Z")
    lines = [f"##[group]Run {job.name}", "make test", "##[endgroup]"]
    if job.conclusion != "success":
        lines.append("##[error]Process completed with exit code 1.")
    return "".join(f"{at} {line}\n" for line in lines).encode()
