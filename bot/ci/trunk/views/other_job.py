"""GET /{owner}/{repo}/other-job/{id}: a job that ran elsewhere than on GitHub Actions, and why it failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.ci.collect import job_reads
from bot.ci.collect.states import State
from bot.ci.trunk.cells import CONCLUSIONS, STATES
from bot.ci.trunk.runner_labels import BETWEEN
from bot.ci.trunk.store import other_jobs
from bot.core.links import web_url
from bot.web import blocks
from bot.web import view_parameters as declare
from bot.web.subjects import JobSubject
from bot.web.view import Page, View
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from bot.ci.collect.job_reads import LogState
    from bot.ci.trunk.store.other_jobs import OtherJobRow
    from bot.web.asked import Asked
    from bot.web.blocks import Block

RUNNING = 30  # seconds until the page of a job is reloaded that has not ended, or whose log is being fetched


@dataclass(frozen=True, kw_only=True)
class FoundOtherJob:
    """A job of another CI, and what is known of it."""

    repo: str
    job: OtherJobRow
    log: LogState | None  # None: it was never asked for
    blocks: list[Block]

    @property
    def conclusion(self) -> str:
        """How it ended; empty while it has not."""
        return CONCLUSIONS[self.job["conclusion"]]


JOB = declare.identifier("id", "our number for the job, as the grid and searches link it")


async def read_job(asked: Asked) -> FoundOtherJob:
    """Read a job; raises Rejected 404."""
    repo, tx = asked[REPO], asked.tx
    job = await other_jobs.find_job(tx, await job_reads.visible_to(asked, repo), -asked[JOB])
    if job is None:
        raise job_reads.not_known("job")
    subject = JobSubject(
        repo=repo,
        repository_id=job["repository_id"],
        job_id=job["job_id"],
        run_id=job["run_id"],
        run_attempt=job["attempt"],
        name=job["job"],
        conclusion=CONCLUSIONS[job["conclusion"]] or None,
        steps=None,
        github=web_url(asked.settings.github_api_url),
        query=dict(asked.request.query),
        settings=asked.settings,
    )
    added = await blocks.gather(asked.context.features, "job", tx, subject)
    log = await job_reads.asked_log_state(tx, job["repository_id"], job["job_id"])
    return FoundOtherJob(repo=repo, job=job, log=log, blocks=added)


def show(found: FoundOtherJob) -> dict[str, Any]:
    """Return what the page shows."""
    job = found.job
    return {
        "repo": found.repo,
        "job": job,
        "word": found.conclusion or STATES[job["state"]],
        "tone": job_reads.conclusion_tone(found.conclusion or None),
        "took": job_reads.seconds_between(job["started_at"], job["completed_at"]),
        "queued": None if job["held"] else job_reads.seconds_between(job["queued_at"], job["started_at"]),
        "log": found.log,
        "runner": (job["runner_label"] or "").replace(BETWEEN, f"{BETWEEN} "),
        "blocks": found.blocks,
    }


def _refresh(found: FoundOtherJob) -> int:
    waits = found.log is not None and found.log.state == State.WANTED
    return RUNNING if waits or not found.conclusion else 0


VIEW = View(
    read=read_job,
    parameters=(REPO, JOB),
    page=Page(
        path=r"/{owner}/{repo}/other-job/{id:\d+}", template="other_job.html", values=show, refresh=_refresh
    ),
)
