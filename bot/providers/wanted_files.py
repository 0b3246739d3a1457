"""Which files of Buildkite's jobs are fetched, by the settings: logs of those that failed, reports of tests of any."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, cast

from bot.ci.collect import collection_scope
from bot.ci.collect.receiving import Fetched, ToldJob
from bot.ci.collect.settings import CollectSettings
from bot.ci.collect.store import runs
from bot.ci.trunk.job_numbers import make_number
from bot.core.errors import GiveUp
from bot.providers import cells, rows
from bot.providers.settings import BUILDKITE, providers_of
from bot.providers.trust import is_trusted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.core.feature import Features
    from bot.core.settings import Settings
    from bot.db.transaction import BeforeCommit, Changed, Transaction
    from bot.providers.settings import Provider
    from bot.providers.tables import ProviderJobRow

LOG, REPORTS = "provider_log", "provider_reports"  # kinds of tasks
DELAY = 5.0  # seconds until Buildkite usually has all of a job
FAILED = frozenset({"failure", "timed_out"})
IDENTIFIER = re.compile(r"[A-Za-z0-9-]{1,100}")  # of a job or an artifact, as a part of an address


class WantedFiles(NamedTuple):
    """A job whose files are wanted, and who has them."""

    job: ProviderJobRow
    provider: Provider
    log: Fetched

    @property
    def path(self) -> str:
        """Where the job is in Buildkite's API."""
        organization, _, pipeline = self.job["project"].partition("/")
        of_build = f"/v2/organizations/{organization}/pipelines/{pipeline}/builds/{self.job['number']}"
        return f"{of_build}/jobs/{self.job['job_id']}"


def make_observer(settings: Settings, _features: Features) -> BeforeCommit | None:
    """Return the hook that requests the files of jobs that ended; None without an API token."""
    if not any(one.api_token for one in providers_of(settings, BUILDKITE)):
        return None

    async def request(tx: Transaction, changed: Changed) -> None:
        for job in cast("Sequence[ProviderJobRow]", changed.get("provider_job", ())):
            provider = _provider(settings, job)
            if provider is None or not job["conclusion"] or not job["started_at"]:
                continue
            key = f"{job['repository_id']} {job['project']} {job['job_id']}"
            if job["conclusion"] in FAILED:
                tx.enqueue(LOG, key, delay=DELAY)
            if provider.junit:
                tx.enqueue(REPORTS, key, delay=DELAY)

    return request


async def find_wanted(tx: Transaction, context: Context, key: str) -> WantedFiles | None:
    """Return the job of a task's key; None where its files are not wanted, or not any more.

    Raises GiveUp for a key of no job.
    """
    repository_id, _, rest = key.partition(" ")
    project, _, job_id = rest.partition(" ")
    if not repository_id.isdigit() or not job_id:
        raise GiveUp(f"{key!r} names no job")
    job = await rows.find_job(tx, int(repository_id), BUILDKITE, project, job_id)
    provider = _provider(context.settings, job) if job else None
    if job is None or provider is None:
        return None
    workflow = cells.workflow_name(job)
    if await collection_scope.run_refusal(tx, context.settings, job["repo"], workflow=workflow):
        return None
    return WantedFiles(job, provider, await _describe_log(tx, context.settings, job))


def _provider(settings: Settings, job: ProviderJobRow) -> Provider | None:
    """Return whose API token reads a job's files: it is still mapped to the repository that it was recorded for."""
    fetchable = job["provider"] == BUILDKITE and job["head_sha"] and job["number"] is not None
    if not fetchable or not IDENTIFIER.fullmatch(job["job_id"]):
        return None
    for one in providers_of(settings, BUILDKITE):
        if one.api_token and one.projects.get(job["project"], "").casefold() == job["repo"].casefold():
            return one
    return None


async def _describe_log(tx: Transaction, settings: Settings, job: ProviderJobRow) -> Fetched:
    facts = await runs.repository_facts(tx, job["repository_id"])
    patterns = settings.of(CollectSettings).ci_trusted_branches
    trusted = is_trusted(job, default_branch=facts.default_branch, patterns=patterns)
    number = make_number(BUILDKITE, job["job_id"])
    told: ToldJob = {
        "repo": job["repo"],
        "workflow": cells.workflow_name(job),
        "name": job["job_name"] or "",
        "conclusion": job["conclusion"],
        "head_sha": job["head_sha"] or "",
        "branch": job["branch"],
        "pull": job["pr_number"],
        "trusted": trusted,
        "began_at": job["started_at"],
        "ended_at": job["completed_at"],
    }
    return Fetched(
        repository_id=job["repository_id"],
        repo=job["repo"],
        source="provider",
        kind="log",
        object_id=number,
        run_id=make_number(BUILDKITE, job["workflow_id"] or job["job_id"]),
        run_attempt=job["attempt"] or 1,
        job_id=number,
        name=told["name"],
        head_sha=told["head_sha"],
        trusted=trusted,
        private=facts.private is not False,
        size=0,
        sha256="",
        failed=job["conclusion"] in FAILED,
        workflow=told["workflow"],
        told=told,
    )
