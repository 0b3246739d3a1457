"""Cells of the grid: what jobs of other CIs say of a commit, written in the transaction that records them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from bot.ci.trunk.other_runs import DID_NOT_START
from bot.ci.trunk.store import column_ids, other_jobs
from bot.ci.trunk.store.other_jobs import OtherJob
from bot.core import escaping
from bot.providers import buildkite, statuses
from bot.providers.settings import BUILDKITE, CIRCLECI

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.transaction import Changed, Transaction
    from bot.providers.tables import ProviderJobRow, ProviderRunRow

STATUSES = "statuses"  # begins the names of the columns of commit statuses
HELD = "waiting"  # status of a job that waits for more than a runner
UNRUN = "error"  # state of a workflow of CircleCI that could not be run: no job tells of it


async def write_cells(tx: Transaction, changed: Changed) -> None:
    """Before a commit: write the cells of changed jobs, and of workflows that could not be run."""
    jobs = cast("Sequence[ProviderJobRow]", changed.get("provider_job", ()))
    runs = cast("Sequence[ProviderRunRow]", changed.get("provider_run", ()))
    found = [_of_job(job) for job in jobs if job["head_sha"]]
    found += [
        _of_run(run)
        for run in runs
        if run["head_sha"] and run["provider"] == CIRCLECI and run["raw_state"] == UNRUN
    ]
    await other_jobs.write_jobs(tx, found)


def workflow_name(job: ProviderJobRow) -> str:
    """Return what the workflow or pipeline of a job is called in the grid."""
    return f"{job['provider']} / {job['workflow_name'] or escaping.NAMELESS}"


def _of_job(job: ProviderJobRow) -> OtherJob:
    if job["provider"] == statuses.STATUS:
        return _of_status(job)
    provider, workflow = job["provider"], job["workflow_name"] or escaping.NAMELESS
    name = job["job_name"] or escaping.NAMELESS
    waits = job["provider"] == BUILDKITE and job["raw_state"] in buildkite.WAITING
    allowed = job["soft_failed"] and job["conclusion"] == "neutral"
    return OtherJob(
        repository_id=job["repository_id"],
        head_sha=job["head_sha"] or "",
        source=provider,
        workflow=workflow_name(job),
        name=name,
        # what they call the commit statuses that they set on GitHub: CircleCI one for a job, Buildkite for a pipeline
        shown_as=f"ci/circleci: {name}" if provider == CIRCLECI else f"buildkite/{workflow}",
        id=job["job_id"],
        run=job["workflow_id"] or job["job_id"],
        status=HELD if waits else job["status"] or "queued",
        conclusion=other_jobs.ALLOWED if allowed else job["conclusion"] or "",
        attempt=job["attempt"] or 1,
        shard=job["shard"] or 0,
        shards=job["shards"] or 0,
        queued_at=job["runnable_at"] or job["created_at"],
        started_at=job["started_at"],
        completed_at=job["completed_at"],
        held=job["runnable_at"] is None,  # since when only a runner was missing is not known
        runner=job["runner"] or provider,
        line=job["reason"],
        kind=job["failure_kind"],
        url=job["url"],
    )


def _of_status(job: ProviderJobRow) -> OtherJob:
    """Return a commit status as a job: it says nothing of runners, nor when it was queued."""
    context = statuses.context_of(job["job_id"])
    return OtherJob(
        repository_id=job["repository_id"],
        head_sha=job["head_sha"] or "",
        source=column_ids.STATUS,
        workflow=STATUSES,
        name=context,
        shown_as=context,
        id=job["job_id"],
        run=job["job_id"],
        status=job["status"] or "in_progress",
        conclusion=job["conclusion"] or "",
        started_at=None if job["conclusion"] else job["created_at"],
        completed_at=job["completed_at"],
        line=job["reason"],
        url=job["url"],
    )


def _of_run(run: ProviderRunRow) -> OtherJob:
    name = run["name"] or escaping.NAMELESS
    return OtherJob(
        repository_id=run["repository_id"],
        head_sha=run["head_sha"] or "",
        source=run["provider"],
        workflow=f"{run['provider']} / {name}",
        name=DID_NOT_START,
        shown_as=None,
        id=f"workflow {run['run_id']}",
        run=run["run_id"],
        status="completed",
        conclusion=run["conclusion"] or "failure",
        queued_at=run["created_at"],
        completed_at=run["completed_at"],
        held=True,
        line="the workflow could not be run",
        url=run["url"],
    )
