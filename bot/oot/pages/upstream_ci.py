"""Upstream's own CI on a commit, as the pages of pull requests and commits show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.oot.pages import rows
from bot.oot.verdict import upstream_checks

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.rows import WorkflowJobRow
    from bot.oot.verdict.upstream_checks import UpstreamCheck

MOST = 2_000  # jobs of a commit, and as many checks


@dataclass(frozen=True, kw_only=True)
class UpstreamCi:
    """Upstream's own workflow jobs and the checks of other Apps on a commit."""

    jobs: list[WorkflowJobRow]  # every attempt
    checks: list[UpstreamCheck]  # each job and check once, the red ones first

    @property
    def running(self) -> bool:
        """Whether any of them is unfinished."""
        return upstream_checks.running(self.checks)

    @property
    def counts(self) -> str:
        """How many passed and failed."""
        return upstream_checks.counts(self.checks)


async def read_upstream_ci(tx: Transaction, repo: str, sha: str, *, ours: int) -> UpstreamCi:
    """Return upstream's own CI on a commit, without the check runs of our App, whose id is `ours`."""
    jobs = await rows.upstream_jobs(tx, repo, sha, limit=MOST)
    checks = await rows.upstream_checks(tx, repo, sha, limit=MOST)
    return UpstreamCi(jobs=jobs, checks=upstream_checks.merge_checks(jobs, checks, ours=ours))
