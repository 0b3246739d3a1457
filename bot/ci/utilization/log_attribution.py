"""Whose log is it? By GitHub's word, or by our row of an upload; what the log says only selects among a run's jobs."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from bot.ci.collect import job_names
from bot.ci.collect.attribution import Job, reported_job
from bot.ci.collect.store import runs as collected
from bot.ci.collect.store import uploads
from bot.ci.trunk import runner_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.collect.receiving import Fetched
    from bot.ci.collect.tables import UploadRow
    from bot.ci.utilization.tables import JobKey, JobNames, JobRow
    from bot.db.transaction import Transaction
    from bot.ingest.rows import WorkflowJobRow

ELSEWHERE = 2**52  # from here on ids of runs and jobs of other CIs; GitHub's are far below
DAY = 86_400_000  # milliseconds
UNKNOWN = "unknown"  # a runner without label


class LogOwner(NamedTuple):
    """The job that a log is of, and what is known of it. Times are milliseconds."""

    key: JobKey
    names: JobNames
    claims: tuple[str, str]  # what the log should say: ids of run and job, empty where they are not known
    started_at: int | None = None
    completed_at: int | None = None


def with_owner(row: JobRow, owner: LogOwner) -> JobRow:
    """Return a log's row as that of a job; of one whose end is not known, its time and day stay as they are."""
    found: JobRow = {**row, **owner.key, **owner.names}
    started, ended = owner.started_at, owner.completed_at
    found["machine_s"] = round(row["observed_s"])
    if ended is not None:
        found["day"] = ended // DAY
        if started is not None:
            found["machine_s"] = max(0, ended - started) // 1000
    return found


def number_elsewhere(*parts: str) -> int:
    """Return the id by which we know a run or job of another CI."""
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return ELSEWHERE + int.from_bytes(digest[:8], "big") % ELSEWHERE


def run_elsewhere(repo: str, run_id: str) -> int:
    """Return the id by which we know a backend's run on another CI."""
    return number_elsewhere(repo.casefold(), run_id)


async def find_owner(tx: Transaction, fetched: Fetched, claimed_job: str) -> LogOwner:
    """Return the job that a log is of, which the log may name; without one, the run, and an id below 0."""
    if fetched.source == "upload":
        upload = await uploads.find_upload(tx, -fetched.object_id)
        assert upload
        return await job_of_upload(tx, upload)
    jobs = await collected.jobs_of_run(tx, fetched.repository_id, fetched.run_id)
    job_id = fetched.job_id
    if job_id is None:
        known = [Job(job["id"], job["name"] or "", job["run_attempt"] or 1) for job in jobs]
        job_id = reported_job(claimed_job, known).job_id
    job = next((one for one in jobs if one["id"] == job_id), None)
    return owner_from_job(job, jobs) if job is not None else await _owner_from_run(tx, fetched)


async def _owner_from_run(tx: Transaction, fetched: Fetched) -> LogOwner:
    run = await collected.find_attempt(tx, fetched.run_id, fetched.run_attempt)
    return LogOwner(
        key={
            "repository_id": fetched.repository_id,
            "run_id": fetched.run_id,
            "run_attempt": fetched.run_attempt,
            "job_id": -fetched.object_id,
        },
        names={
            "repo": fetched.repo,
            "workflow_name": (run and run["name"]) or "",
            "job_name": fetched.name,
            "base_name": fetched.name,
            "config": "",
            "runner_label": UNKNOWN,
            "head_sha": fetched.head_sha,
            "head_branch": (run and run["head_branch"]) or "",
        },
        claims=(str(fetched.run_id), ""),
        started_at=run and run["run_started_at"],
        completed_at=run and run["updated_at"],
    )


def owner_from_job(job: WorkflowJobRow, jobs: Sequence[WorkflowJobRow]) -> LogOwner:
    """Return a job of GitHub's; the others of its run show which numbers in its name are shards."""
    attempt = job["run_attempt"] or 1
    beside = [one for one in jobs if (one["run_attempt"] or 1) == attempt]
    names = job_names.resolve_shards(
        job_names.parse_name(one["workflow_name"], one["name"] or "") for one in beside
    )
    name = next(name for name, one in zip(names, beside, strict=True) if one["id"] == job["id"])
    return LogOwner(
        key={
            "repository_id": job["repository_id"],
            "run_id": job["run_id"] or 0,
            "run_attempt": attempt,
            "job_id": job["id"],
        },
        names={
            "repo": job["repo"],
            "workflow_name": name.workflow,
            "job_name": name.name,
            "base_name": name.job,
            "config": name.config,
            "runner_label": runner_labels.choose_label(job["labels"] or []) or name.runner or UNKNOWN,
            "head_sha": job["head_sha"] or "",
            "head_branch": job["head_branch"] or "",
        },
        claims=(str(job["run_id"]), str(job["id"])),
        started_at=job["started_at"],
        completed_at=job["completed_at"],
    )


async def job_of_upload(tx: Transaction, upload: UploadRow) -> LogOwner:
    """Return the job of an uploaded log: GitHub's, where the run is one there with a job of that name."""
    repository_id, repo = upload["repository_id"], upload["backend"]
    run_id, attempt = upload["run_id"], upload["run_attempt"]
    if run_id.isascii() and run_id.isdigit() and len(run_id) < 19:
        jobs = await collected.jobs_of_run(tx, repository_id, int(run_id))
        same = [one for one in jobs if one["name"] == upload["job"] and (one["run_attempt"] or 1) == attempt]
        if len(same) == 1:
            return owner_from_job(same[0], jobs)
    name = job_names.parse_name(upload["workflow"], upload["job"])
    return LogOwner(
        key={
            "repository_id": repository_id,
            "run_id": run_elsewhere(repo, run_id),
            "run_attempt": attempt,
            "job_id": number_elsewhere(repo.casefold(), run_id, upload["workflow"], upload["job"]),
        },
        names={
            "repo": repo,
            "workflow_name": upload["workflow"],
            "job_name": upload["job"],
            "base_name": name.job,
            "config": name.config,
            "runner_label": name.runner or UNKNOWN,
            "head_sha": "",
            "head_branch": "",
        },
        claims=(run_id, ""),
        completed_at=upload["received_at"],
    )
