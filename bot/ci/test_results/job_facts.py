"""What a job's results are of, by GitHub's word and our own dispatches; nothing here is read from a report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.collect import job_names
from bot.ci.collect.settings import CollectSettings
from bot.ci.collect.store import runs as collect_rows
from bot.ci.collect.tables import ci_upload
from bot.ci.collect.trust import is_trusted, is_trusted_branch
from bot.ci.trunk.tables import branch_commit
from bot.ingest import watched
from bot.ingest.tables import records
from bot.oot.results import dispatches
from bot.oot.results.tables import oot_workflow_job

if TYPE_CHECKING:
    from bot.ci.collect.job_names import JobName
    from bot.ci.test_results.rows import JobKey, PartRow
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.ingest.rows import WorkflowRunRow
    from bot.oot.results.tables import DispatchRow

ON_TRUNK = frozenset({"push", "nightly", "periodic"})  # dispatches about a commit of a branch
JOB, RUN = records["workflow_job"].c, records["workflow_run"].c
HEAD, REPORTED = records["pull_head"].c, oot_workflow_job.c


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a job beside its reports."""

    repo: str
    name: JobName
    head_sha: str
    upstream_sha: str | None
    upstream_repo: str | None
    backend: str | None
    dispatch_id: str | None
    head_branch: str | None
    event: str | None
    trusted: bool
    pr_number: int | None
    conclusion: str | None
    at: int


async def of(tx: Transaction, settings: Settings, key: JobKey, parts: list[PartRow]) -> Facts | None:
    """Return the facts of a job, None where there is no record of its run."""
    if key.run_id < 0:
        return await _of_upload(tx, settings, parts)
    run = await collect_rows.find_attempt(tx, key.run_id, key.run_attempt)
    if run is None or run["repository_id"] != key.repository_id:
        return None
    job = await collect_rows.find_job(tx, [key.repository_id], key.job_id) if key.job_id > 0 else None
    dispatch = None if settings.is_upstream(run["repo"]) else await _dispatch_of(tx, run)
    facts = Facts(
        repo=run["repo"],
        name=job_names.parse_name(run["name"], (job and job["name"]) or (parts[0]["name"] if parts else "")),
        head_sha=run["head_sha"] or "",
        upstream_sha=dispatch and dispatch["head_sha"],
        upstream_repo=dispatch and dispatch["upstream_repo"],
        backend=run["repo"],
        dispatch_id=dispatch and dispatch["id"],
        head_branch=run["head_branch"],
        event=run["event"],
        trusted=await _is_own(tx, settings, run) or await _is_trusted_dispatch(tx, settings, dispatch),
        pr_number=dispatch and dispatch["pr_number"],
        conclusion=job and job["conclusion"],
        at=(job and (job["started_at"] or job["created_at"]))
        or run["run_started_at"]
        or run["created_at"]
        or 0,
    )
    if not settings.is_upstream(run["repo"]):
        return facts
    pull, repo = await _pull_of(tx, run), run["repo"]
    return replace(facts, upstream_sha=run["head_sha"], upstream_repo=repo, backend=None, pr_number=pull)


async def _of_upload(tx: Transaction, settings: Settings, parts: list[PartRow]) -> Facts | None:
    """Return the facts of a job of another CI: our dispatch says what it is about, the backend how it is called."""
    uploads = [-part["object_id"] for part in parts[:1]]
    found = await tx.row(sa.select(ci_upload).where(ci_upload.c.id.in_(uploads)))
    if found is None:
        return None
    dispatch = (await dispatches.by_id(tx, [found["dispatch_id"]])).get(found["dispatch_id"])
    facts = Facts(
        repo=found["backend"],
        name=job_names.parse_name(found["workflow"], found["job"]),
        head_sha="",
        upstream_sha=dispatch and dispatch["head_sha"],
        upstream_repo=dispatch and dispatch["upstream_repo"],
        backend=found["backend"],
        dispatch_id=found["dispatch_id"] or None,
        head_branch=None,
        event=found["event_type"],
        trusted=await _is_trusted_dispatch(tx, settings, dispatch),
        pr_number=dispatch and dispatch["pr_number"],
        conclusion=None,
        at=dispatch["dispatched_at"] or dispatch["created_at"] if dispatch else found["received_at"],
    )
    if found["event_type"] is None:
        return facts
    if found["event_type"] == "push":
        return replace(facts, head_sha=found["commit_sha"])
    return await _of_nightly(tx, settings, facts, found["commit_sha"])


async def _of_nightly(tx: Transaction, settings: Settings, facts: Facts, sha: str) -> Facts:
    """Return the facts of a run that nobody dispatched: of upstream's commit where that is on a trusted branch.

    That the run tested it is the backend's word alone: it never is trusted, and a pull request's commit not believed.
    """
    for repo in settings.upstream_repo:
        if await _is_on_trusted_branch(tx, settings, repo, sha):
            return replace(facts, upstream_repo=repo, upstream_sha=sha)
    return facts


async def _is_own(tx: Transaction, settings: Settings, run: WorkflowRunRow) -> bool:
    facts = await collect_rows.repository_facts(tx, run["repository_id"])
    patterns = settings.of(CollectSettings).ci_trusted_branches
    return is_trusted(run, default_branch=facts.default_branch, patterns=patterns)


async def _is_trusted_dispatch(tx: Transaction, settings: Settings, dispatch: DispatchRow | None) -> bool:
    """Whether a dispatch was for a commit of a trusted branch of upstream: good for that backend's own baseline."""
    if dispatch is None or dispatch["event_type"] not in ON_TRUNK or not dispatch["head_sha"]:
        return False
    return await _is_on_trusted_branch(tx, settings, dispatch["upstream_repo"], dispatch["head_sha"])


async def _is_on_trusted_branch(tx: Transaction, settings: Settings, repo: str, sha: str) -> bool:
    """Whether a commit is on a trusted branch of a repository."""
    owners = sorted(await watched.ids(tx, repo))
    query = sa.select(branch_commit.c.repository_id, branch_commit.c.branch).where(
        branch_commit.c.sha == sha, branch_commit.c.repository_id.in_(owners)
    )
    patterns = settings.of(CollectSettings).ci_trusted_branches
    for row in await tx.rows(query.limit(100)):
        facts = await collect_rows.repository_facts(tx, row["repository_id"])
        if is_trusted_branch(row["branch"], default_branch=facts.default_branch, patterns=patterns):
            return True
    return False


async def _dispatch_of(tx: Transaction, run: WorkflowRunRow) -> DispatchRow | None:
    """Return the dispatch that reports from this run belong to."""
    query = sa.select(REPORTED.dispatch_id).where(
        REPORTED.run_id == str(run["id"]),
        REPORTED.run_attempt == run["run_attempt"],
        sa.func.lower(REPORTED.downstream_repo) == run["repo"].lower(),
        REPORTED.dispatch_id.is_not(None),
    )
    found = (await tx.run(query.order_by(REPORTED.dispatch_id).limit(1))).scalar()
    return await dispatches.get(tx, found) if found else None


async def _pull_of(tx: Transaction, run: WorkflowRunRow) -> int | None:
    """Return the pull request of a run; GitHub names none where the head is a fork's."""
    if run["pull_requests"]:
        return min(run["pull_requests"])
    if run["event"] not in {"pull_request", "pull_request_target"} or not run["head_sha"]:
        return None
    query = sa.select(HEAD.number).where(
        HEAD.repository_id == run["repository_id"], HEAD.head_sha == run["head_sha"]
    )
    found: int | None = (await tx.run(query.order_by(HEAD.number).limit(1))).scalar()
    return found
