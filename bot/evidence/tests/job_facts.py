"""What a job's results are of, by GitHub's word and our own dispatches; nothing here is read from a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import sqlalchemy as sa

from bot.evidence.collect.receivers import ReportedJob
from bot.evidence.collect.tables import ci_upload
from bot.ingest import repositories
from bot.ingest.tables import records
from bot.jobs import job_names, runs
from bot.jobs.settings import CollectSettings, is_trusted_branch
from bot.jobs.tables import branch_commit
from bot.oot.results import dispatches
from bot.oot.results.tables import oot_workflow_job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.evidence.tests.tables import JobKeyRow, JobSubject
    from bot.ingest.record_rows import WorkflowRunRow
    from bot.jobs.job_names import JobName
    from bot.oot.results.tables import DispatchRow

JOB, RUN = records["workflow_job"].c, records["workflow_run"].c
HEAD, REPORTED = records["pull_head"].c, oot_workflow_job.c


class FactSource(TypedDict):
    """A file of a job."""

    object_id: int
    name: str  # of the artifact
    told: ReportedJob | None  # its job, as another CI tells of it


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a job apart from its reports."""

    repo: str
    name: JobName
    subject: JobSubject
    conclusion: str | None
    at: int

    @property
    def tested(self) -> str:
        """The commit that was tested."""
        return self.subject["upstream_sha"] or self.subject["head_sha"]


async def read_facts(
    tx: Transaction, settings: Settings, key: JobKeyRow, parts: Sequence[FactSource]
) -> Facts | None:
    """Read the facts of a job; None if there is no record of its run."""
    if key["run_id"] < 0:
        told = next((part["told"] for part in parts if part["told"]), None)
        return _of_told(settings, told) if told else await _of_upload(tx, settings, parts)
    run = await runs.find_attempt(tx, key["run_id"], key["run_attempt"])
    if run is None or run["repository_id"] != key["repository_id"]:
        return None
    job = await runs.find_job(tx, [key["repository_id"]], key["job_id"]) if key["job_id"] > 0 else None
    dispatch = None if settings.is_upstream(run["repo"]) else await _dispatch_of(tx, run)
    own = settings.is_upstream(run["repo"])
    subject: JobSubject = {
        "head_sha": run["head_sha"] or "",
        "upstream_sha": run["head_sha"] if own else dispatch and dispatch["head_sha"],
        "upstream_repo": run["repo"] if own else dispatch and dispatch["upstream_repo"],
        "backend": None if own else run["repo"],
        "dispatch_id": dispatch and dispatch["id"],
        "head_branch": run["head_branch"],
        "event": run["event"],
        "trusted": await runs.is_trusted_run(tx, settings, run),
        "pr_number": await _pull_of(tx, run) if own else dispatch and dispatch["pr_number"],
    }
    began = job and (job["started_at"] or job["created_at"])
    return Facts(
        repo=run["repo"],
        name=job_names.parse_name(run["name"], (job and job["name"]) or (parts[0]["name"] if parts else "")),
        subject=subject,
        conclusion=job and job["conclusion"],
        at=began or run["run_started_at"] or run["created_at"] or 0,
    )


def _of_told(settings: Settings, told: ReportedJob) -> Facts:
    """Return the facts of another CI's job, as that CI reports them."""
    own = settings.is_upstream(told["repo"])
    subject: JobSubject = {
        "head_sha": told["head_sha"],
        "upstream_sha": told["head_sha"] if own else None,
        "upstream_repo": told["repo"] if own else None,
        "backend": None,
        "dispatch_id": None,
        "head_branch": told["branch"],
        "event": None,
        "trusted": told["trusted"],
        "pr_number": told["pull"],
    }
    return Facts(
        repo=told["repo"],
        name=job_names.parse_name(told["workflow"], told["name"]),
        subject=subject,
        conclusion=told["conclusion"],
        at=told["began_at"] or told["ended_at"] or 0,
    )


async def _of_upload(tx: Transaction, settings: Settings, parts: Sequence[FactSource]) -> Facts | None:
    """Return the facts of an uploaded job: our dispatch says what it tested, the backend what it is called."""
    uploads = [-part["object_id"] for part in parts[:1]]
    upload = await tx.row(sa.select(ci_upload).where(ci_upload.c.id.in_(uploads)))
    if upload is None:
        return None
    dispatch = (await dispatches.get_by_id(tx, [upload["dispatch_id"]])).get(upload["dispatch_id"])
    subject: JobSubject = {
        "head_sha": upload["commit_sha"] if upload["event_type"] == "push" else "",
        "upstream_sha": dispatch and dispatch["head_sha"],
        "upstream_repo": dispatch and dispatch["upstream_repo"],
        "backend": upload["backend"],
        "dispatch_id": upload["dispatch_id"] or None,
        "head_branch": None,
        "event": upload["event_type"],
        "trusted": await runs.is_trusted_dispatch(tx, settings, dispatch),
        "pr_number": dispatch and dispatch["pr_number"],
    }
    if upload["event_type"] not in {None, "push"} and (
        upstream := await _of_nightly(tx, settings, upload["commit_sha"])
    ):
        subject["upstream_repo"], subject["upstream_sha"] = upstream
    return Facts(
        repo=upload["backend"],
        name=job_names.parse_name(upload["workflow"], upload["job"]),
        subject=subject,
        conclusion=None,
        at=dispatch["dispatched_at"] or dispatch["created_at"] if dispatch else upload["received_at"],
    )


async def _of_nightly(tx: Transaction, settings: Settings, sha: str) -> tuple[str, str] | None:
    """Return upstream and the commit that a run without a dispatch tested, if it is on a trusted branch.

    That the run tested it is the backend's word alone: it is never trusted, and a pull request's commit not believed.
    """
    for repo in settings.upstream_repo:
        if await _is_on_trusted_branch(tx, settings, repo, sha):
            return repo, sha
    return None


async def _is_on_trusted_branch(tx: Transaction, settings: Settings, repo: str, sha: str) -> bool:
    """Whether a commit is on a trusted branch of a repository."""
    owners = sorted(await repositories.read_ids(tx, repo))
    query = sa.select(branch_commit.c.repository_id, branch_commit.c.branch).where(
        branch_commit.c.sha == sha, branch_commit.c.repository_id.in_(owners)
    )
    patterns = settings.of(CollectSettings).ci_trusted_branches
    for row in await tx.rows(query.limit(100)):
        facts = await runs.repository_facts(tx, row["repository_id"])
        if is_trusted_branch(row["branch"], default_branch=facts.default_branch, patterns=patterns):
            return True
    return False


async def _dispatch_of(tx: Transaction, run: WorkflowRunRow) -> DispatchRow | None:
    """Return the dispatch that this run's reports belong to."""
    query = sa.select(REPORTED.dispatch_id).where(
        REPORTED.run_id == str(run["id"]),
        REPORTED.run_attempt == run["run_attempt"],
        sa.func.lower(REPORTED.downstream_repo) == run["repo"].lower(),
        REPORTED.dispatch_id.is_not(None),
    )
    dispatch_id = (await tx.run(query.order_by(REPORTED.dispatch_id).limit(1))).scalar()
    return await dispatches.get_dispatch(tx, dispatch_id) if dispatch_id else None


async def _pull_of(tx: Transaction, run: WorkflowRunRow) -> int | None:
    """Return the pull request of a run; GitHub names none for a fork's head."""
    if run["pull_requests"]:
        return min(run["pull_requests"])
    if run["event"] not in {"pull_request", "pull_request_target"} or not run["head_sha"]:
        return None
    query = sa.select(HEAD.number).where(
        HEAD.repository_id == run["repository_id"], HEAD.head_sha == run["head_sha"]
    )
    number: int | None = (await tx.run(query.order_by(HEAD.number).limit(1))).scalar()
    return number
