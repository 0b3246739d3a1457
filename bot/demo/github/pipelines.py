"""How do workflow runs and jobs go on? Each step changes state, then sends GitHub's webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.demo.github import payloads
from bot.demo.github.shapes import actions
from bot.demo.github.shapes.repository import html_of
from bot.demo.github.stage import Stage
from bot.demo.github.state import CheckRun, Run, WorkflowJob

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from bot.clock import Clock
    from bot.demo.github.records import Dispatch
    from bot.demo.github.state import Repo, Workflow


class Pipelines(Stage):
    """GitHub Actions, as far as its runs and jobs are seen from outside.

    `on_dispatch` and `on_rerun` are where a backend's CI hooks in: called, after the API has
    answered, with the dispatch, and with the run and whether only its failed jobs are to run.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
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
    ) -> Run:
        """Start a run."""
        run = self.queued_run(
            self.world.repo(repo),
            workflow=self.world.workflow(self.world.repo(repo), name),
            event=event,
            display_title=display_title,
            head_sha=head_sha,
            actor=actor,
        )
        await self.tell(payloads.workflow_run(self.world, run, "requested"))
        await self._begin(run)
        return run

    async def start_job(self, run: Run, name: str, labels: Sequence[str] = ("ubuntu-latest",)) -> WorkflowJob:
        """Queue a job and let a runner take it at once."""
        job = await self.queue_job(run, name, labels)
        await self.begin_job(job)
        return job

    async def queue_job(self, run: Run, name: str, labels: Sequence[str] = ("ubuntu-latest",)) -> WorkflowJob:
        """Queue a job; the first one of a re-run gets its run going."""
        await self._begin(run)
        now = self.world.now()
        check_run = self._check_run_of(run, name)
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
        await self.tell(
            payloads.workflow_job(self.world, job, "queued"),
            payloads.check_run(self.world, check_run, "created", run.actor.login),
        )
        return job

    async def begin_job(self, job: WorkflowJob) -> None:
        """Let a runner take a queued job."""
        job.status = job.check_run.status = "in_progress"
        job.runner, job.started_at = "GitHub Actions 6", self.world.now()
        job.check_run.started_at = job.started_at
        await self.tell(payloads.workflow_job(self.world, job, "in_progress"))

    async def finish_job(self, job: WorkflowJob, conclusion: str) -> None:
        """End a job; one that has ended, such as by a cancelled run, stays as it is."""
        if job.status == "completed":
            return
        job.status, job.conclusion, job.completed_at = "completed", conclusion, self.world.now()
        check_run = job.check_run
        check_run.status, check_run.conclusion = "completed", conclusion
        check_run.completed_at = job.completed_at
        await self.tell(
            payloads.workflow_job(self.world, job, "completed"),
            payloads.check_run(self.world, check_run, "completed", job.run.actor.login),
        )

    async def finish_run(self, run: Run, conclusion: str) -> None:
        """End a run; one that has ended stays as it is."""
        if run.status == "completed":
            return
        run.status, run.conclusion, run.updated_at = "completed", conclusion, self.world.now()
        await self.tell(
            payloads.workflow_run(self.world, run, "completed"),
            payloads.check_suite(self.world, run.suite, "completed", run.actor.login),
        )

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
        """Make a run that waits; nothing is told yet."""
        now, sha = self.world.now(), head_sha or repo.branches[repo.default_branch]
        earlier = sum(each.workflow is workflow for each in repo.runs.values())
        run = Run(
            id=self.world.new_id(),
            repo=repo,
            workflow=workflow,
            suite=self.world.new_suite(repo, self.world.actions_app, sha),
            event=event,
            display_title=display_title or event,
            head_sha=sha,
            head_branch=repo.default_branch,
            actor=self.world.user(actor),
            run_number=1 + earlier,
            created_at=now,
            started_at=now,
            updated_at=now,
        )
        repo.runs[run.id] = run
        return run

    def begin_attempt(self, run: Run) -> None:
        """Put the last attempt away and queue the next."""
        run.attempts.append(actions.run(self.world, run))
        run.run_attempt += 1
        run.status, run.conclusion = "queued", None
        run.started_at = run.updated_at = self.world.now()

    async def dispatched(self, dispatch: Dispatch) -> None:
        """Do what an accepted dispatch sets off."""
        if dispatch.run:
            await self.tell(payloads.workflow_run(self.world, dispatch.run, "requested"))
        if self.on_dispatch:
            await self.on_dispatch(dispatch)

    async def rerun_requested(self, run: Run, *, failed_only: bool) -> None:
        """Do what an accepted re-run sets off. GitHub sends no `requested` for it."""
        if self.on_rerun:
            await self.on_rerun(run, failed_only)

    async def cancelled(self, run: Run) -> None:
        """Stop what a run still has going, then the run."""
        for job in list(run.repo.jobs.values()):
            if job.run is run:
                await self.finish_job(job, "cancelled")
        await self.finish_run(run, "cancelled")

    async def _begin(self, run: Run) -> None:
        if run.status == "queued":
            run.status, run.updated_at = "in_progress", self.world.now()
            await self.tell(payloads.workflow_run(self.world, run, "in_progress"))

    def _check_run_of(self, run: Run, name: str) -> CheckRun:
        number = self.world.new_id()
        check_run = CheckRun(
            id=number,
            repo=run.repo,
            app=self.world.actions_app,
            suite=run.suite,
            name=name,
            head_sha=run.head_sha,
            status="queued",
            details_url=f"{html_of(self.world, run.repo)}/actions/runs/{run.id}/job/{number}",
            started_at=self.world.now(),
        )
        run.repo.check_runs[number] = check_run
        return check_run

    def latest_jobs(self, run: Run) -> list[WorkflowJob]:
        """Return the newest job of each name of a run."""
        return list({each.name: each for each in run.repo.jobs.values() if each.run is run}.values())
