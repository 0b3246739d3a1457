"""Upstream's own CI on a commit, as the pages of pull requests and commits show it: this counts its jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.oot.pages import rows
from bot.oot.verdict import upstream_checks
from bot.oot.verdict.upstream_checks import UpstreamCheck
from bot.web.jobs_elsewhere import read_jobs_elsewhere

if TYPE_CHECKING:
    from bot.ingest.rows import WorkflowJobRow
    from bot.web.asked import Asked
    from bot.web.jobs_elsewhere import JobElsewhere

MOST = 2_000  # jobs of a commit, and as many checks


@dataclass(frozen=True, kw_only=True)
class UpstreamCi:
    """Upstream's own workflow jobs, its jobs on other CIs, and the checks of other Apps on a commit."""

    jobs: list[WorkflowJobRow]  # of GitHub Actions, every attempt
    elsewhere: dict[int, UpstreamCheck]  # jobs on other CIs, by the number that the grid has for them
    checks: list[UpstreamCheck]  # each job and check once, the red ones first

    @property
    def running(self) -> bool:
        """Whether any of them is unfinished."""
        return upstream_checks.running(self.checks)

    @property
    def counts(self) -> str:
        """How many passed and failed."""
        return upstream_checks.counts(self.checks)


async def read_upstream_ci(asked: Asked, repo: str, sha: str) -> UpstreamCi:
    """Return upstream's own CI on a commit, without the check runs of our App."""
    tx, ours = asked.tx, asked.settings.app_id
    jobs = await rows.upstream_jobs(tx, repo, sha, limit=MOST)
    checks = await rows.upstream_checks(tx, repo, sha, limit=MOST)
    others = {job.id: _check(job) for job in await read_jobs_elsewhere(asked.context.features, tx, repo, sha)}
    merged = upstream_checks.merge_checks(jobs, checks, others.values(), ours=ours)
    return UpstreamCi(jobs=jobs, elsewhere=others, checks=merged)


def _check(job: JobElsewhere) -> UpstreamCheck:
    allowed = job.conclusion == "allowed"
    return UpstreamCheck(
        group=job.workflow or "commit status",
        name=job.name,
        status=job.status,
        conclusion="neutral" if allowed else job.conclusion,
        url=job.url,
        attempt=job.attempt,
        seconds=upstream_checks.seconds_between(job.started_at, job.completed_at),
        queued=upstream_checks.seconds_between(job.queued_at, job.started_at),
        title="failed, which is allowed" if allowed else "",
    )
