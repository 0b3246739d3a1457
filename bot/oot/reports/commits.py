"""What our rows know about an upstream commit: pushes, and reports of jobs that nobody dispatched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import sqlalchemy as sa

from bot.ingest.tables import records
from bot.oot.results import jobs
from bot.oot.results.tables import ATTEMPTS, BACKEND_OF_HEAD, SELF_TRIGGERED, oot_workflow_job
from bot.oot.statistics.countable_jobs import flagged

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.db.transaction import Transaction
    from bot.oot.reports.mismatches import Flags

Commit = tuple[str, str]  # the backend that says it ran on it, case folded; SHA
PAGE = 500  # jobs settled in one transaction
JOB = oot_workflow_job.c
UNVERIFIED = flagged("unverified")
UNASKED = (JOB.dispatch_id.is_(None), JOB.pr_number.is_(None), JOB.event_type.in_(SELF_TRIGGERED))


class CommitStatus(TypedDict):
    """What is known about a backend's jobs on one upstream commit."""

    backend: str  # case folded
    upstream_repo: str
    unverified: bool
    refused: bool
    since: int  # epoch milliseconds


class _UnverifiedJob(TypedDict):
    job_key: str
    downstream_repo: str
    upstream_repo: str
    flags: Flags
    received_at: int
    run_id: str
    job_name: str
    workflow_name: str
    delivery_id: str
    run_attempt: int


async def statuses(tx: Transaction, sha: str) -> list[CommitStatus]:
    """Return the status of jobs on one upstream commit that nobody dispatched, equal ones together."""
    query = sa.select(
        sa.func.lower(JOB.downstream_repo).label("backend"),
        JOB.upstream_repo,
        UNVERIFIED.label("unverified"),
        flagged("refused").label("refused"),
        sa.func.min(JOB.received_at).label("since"),
    )
    query = query.where(JOB.head_sha == sha, *UNASKED)
    return await tx.rows_as(CommitStatus, query.group_by("backend", "upstream_repo", "unverified", "refused"))


async def settle(tx: Transaction, sha: str, home: str | None) -> bool:
    """Settle some unverified jobs of a commit: of that repository, or refused; returns whether there were any.

    Some only, and without their failed tests: a commit may have any number of jobs.
    """
    columns = (JOB.job_key, JOB.downstream_repo, JOB.upstream_repo, JOB.flags, JOB.received_at)
    query = sa.select(*columns, *(JOB[name] for name in ATTEMPTS)).where(
        JOB.head_sha == sha, *UNASKED, UNVERIFIED
    )
    query = query.order_by(JOB.job_key).limit(PAGE)
    rows = await tx.rows_as(_UnverifiedJob, query if tx.sqlite else query.with_for_update())
    if not rows:
        return False
    tx.note_changed("oot_workflow_job", rows)
    settled = [
        {"key": row["job_key"], "kept": _settled(row["flags"], home), "home": home or row["upstream_repo"]}
        for row in rows
    ]
    # updated_at stays: the backend reported nothing new
    update = sa.update(oot_workflow_job).where(JOB.job_key == sa.bindparam("key"))
    await tx.run(update.values(flags=sa.bindparam("kept"), upstream_repo=sa.bindparam("home")), settled)
    return True


def _settled(flags: Flags, home: str | None) -> Flags:
    kept = {name: value for name, value in flags.items() if name != "unverified"}
    return kept if home else kept | {"refused": True}


async def counts(tx: Transaction, commits: Collection[Commit]) -> dict[Commit, int]:
    """Return how many jobs nobody dispatched were reported on these commits; without commits that have none."""
    return await _of_each(tx, commits, sa.func.count())


async def lengths_of_tests(tx: Transaction, commits: Collection[Commit]) -> dict[Commit, int]:
    """Return how many characters of failed tests those jobs hold; without commits that have none."""
    return await _of_each(tx, commits, jobs.LENGTH_OF_TESTS)


async def _of_each(tx: Transaction, commits: Collection[Commit], what: Any) -> dict[Commit, int]:
    if not commits:
        return {}
    backends, shas = ({commit[part] for commit in commits} for part in (0, 1))
    query = sa.select(BACKEND_OF_HEAD.label("backend"), JOB.head_sha, what.label("found")).where(
        JOB.head_sha.in_(sorted(shas)), BACKEND_OF_HEAD.in_(sorted(backends)), *UNASKED
    )
    rows = await tx.rows(query.group_by("backend", "head_sha"))
    found = {(row["backend"], row["head_sha"]): int(row["found"]) for row in rows}
    return {commit: found[commit] for commit in commits if commit in found}


async def was_pushed(tx: Transaction, repo: str, sha: str) -> bool:
    """Return whether a commit was pushed to a repository itself, as the newest of a branch or tag."""
    push = records["push"].c
    query = sa.select(push.guid).where(push.after == sha, sa.func.lower(push.repo) == repo.lower())
    return await tx.row(query.limit(1)) is not None


async def default_branch(tx: Transaction, repo: str) -> str | None:
    """Return a repository's default branch as last recorded, None when it never was."""
    repository = records["repository"].c
    query = sa.select(repository.default_branch).where(sa.func.lower(repository.repo) == repo.lower())
    branch: str | None = (
        await tx.run(query.order_by(repository.updated_at.desc().nulls_last()).limit(1))
    ).scalar()
    return branch
