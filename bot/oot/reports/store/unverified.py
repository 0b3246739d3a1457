"""Jobs on commits that only their backends name: what is known of the commit, and how many jobs there are."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypedDict

import sqlalchemy as sa

from bot.db.rows import select
from bot.ingest.tables import records
from bot.oot.results.store import jobs
from bot.oot.results.tables import (
    BACKEND_OF_HEAD,
    SELF_TRIGGERED,
    WITHOUT_COMMIT,
    CountedJob,
    JobFlags,
    oot_workflow_job,
)
from bot.oot.statistics.store.countable_jobs import flagged

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.db.transaction import Transaction
    from bot.oot.reports.mismatches import Flags

# the backend that says it ran on it, case folded; SHA, or the id it gave where the commit is unknown
Commit = tuple[str, str]
PAGE = 500  # jobs settled in one transaction
JOB = oot_workflow_job.c
UNVERIFIED = flagged("unverified")
SETTLED = {"flags": "kept", "upstream_repo": "home", "head_sha": "commit"}  # column -> its parameter
UNASKED = (JOB.dispatch_id.is_(None), JOB.pr_number.is_(None), JOB.event_type.in_(SELF_TRIGGERED))


class CommitStatus(TypedDict):
    """What is known about a backend's jobs on one upstream commit."""

    backend: str  # case folded
    upstream_repo: str
    unverified: bool
    unknown: bool  # no watched repository has this commit
    since: int  # epoch milliseconds


class _UnverifiedJob(CountedJob, JobFlags):
    """A job whose commit is not verified yet, without its failed tests."""


async def read_statuses(tx: Transaction, sha: str) -> list[CommitStatus]:
    """Return the status of jobs on one upstream commit that no dispatch asked for, equal ones together."""
    found: list[CommitStatus] = []
    for place in _places([sha]):
        found += await _read_statuses(tx, place)
    return found


async def _read_statuses(tx: Transaction, place: sa.ColumnElement[bool]) -> list[CommitStatus]:
    query = sa.select(
        sa.func.lower(JOB.downstream_repo).label("backend"),
        JOB.upstream_repo,
        UNVERIFIED.label("unverified"),
        (flagged("refused") | flagged("no_commit")).label("unknown"),
        sa.func.min(JOB.received_at).label("since"),
    )
    query = query.where(place, *UNASKED)
    return await tx.rows_as(CommitStatus, query.group_by("backend", "upstream_repo", "unverified", "unknown"))


async def settle(tx: Transaction, sha: str, home: str | None, *, leniently: bool) -> bool:
    """Settle some unverified jobs of a commit: of that repository, or of none; returns whether there were any.

    Some only, and without their failed tests: a commit may have any number of jobs.
    """
    query = select(_UnverifiedJob, oot_workflow_job).where(JOB.head_sha == sha, *UNASKED, UNVERIFIED)
    query = query.order_by(JOB.job_key).limit(PAGE)
    rows = await tx.fetch(query if tx.sqlite else query.with_for_update())
    if not rows:
        return False
    tx.note_changed("oot_workflow_job", rows)
    unknown = "no_commit" if leniently else "refused"
    settled = [
        {
            "key": row["job_key"],
            "kept": _settled(row["flags"]) | ({} if home else {unknown: True}),
            "home": home or row["upstream_repo"],
            "commit": sha if home or not leniently else None,
        }
        for row in rows
    ]
    # updated_at stays: the backend reported nothing new
    update = sa.update(oot_workflow_job).where(JOB.job_key == sa.bindparam("key"))
    bound: dict[str, Any] = {name: sa.bindparam(given) for name, given in SETTLED.items()}
    await tx.run(update.values(bound), settled)
    return True


def _settled(flags: Flags) -> Flags:
    return {name: value for name, value in flags.items() if name != "unverified"}


async def count_jobs(tx: Transaction, commits: Collection[Commit]) -> dict[Commit, int]:
    """Return how many jobs that no dispatch asked for were reported on these commits, without those that have none."""
    return await _read_each(tx, commits, sa.func.count())


async def measure_tests(tx: Transaction, commits: Collection[Commit]) -> dict[Commit, int]:
    """Return how many characters of failed tests those jobs hold, without those that have none."""
    return await _read_each(tx, commits, jobs.LENGTH_OF_TESTS)


async def _read_each(tx: Transaction, commits: Collection[Commit], what: Any) -> dict[Commit, int]:
    if not commits:
        return {}
    backends, ids = ({commit[part] for commit in commits} for part in (0, 1))
    named = sa.func.coalesce(JOB.head_sha, JOB.delivery_id).label("named")
    query = sa.select(BACKEND_OF_HEAD.label("backend"), named, what.label("found")).where(
        BACKEND_OF_HEAD.in_(sorted(backends)), *UNASKED
    )
    found: Counter[Commit] = Counter()
    for place in _places(ids):
        for row in await tx.rows(query.where(place).group_by("backend", "named")):
            found[row["backend"], row["named"]] += int(row["found"])
    return {commit: found[commit] for commit in commits if commit in found}


def _places(ids: Collection[str]) -> tuple[sa.ColumnElement[bool], ...]:
    """Return where the jobs of some commits are; where the commit is unknown only the id is left."""
    return JOB.head_sha.in_(sorted(ids)), sa.and_(JOB.delivery_id.in_(sorted(ids)), WITHOUT_COMMIT)


async def was_pushed(tx: Transaction, repo: str, sha: str) -> bool:
    """Return whether a commit was pushed to a repository itself, as the newest of a branch or tag."""
    push = records["push"].c
    query = sa.select(push.guid).where(push.after == sha, sa.func.lower(push.repo) == repo.lower())
    return await tx.row(query.limit(1)) is not None


async def read_default_branch(tx: Transaction, repo: str) -> str | None:
    """Return a repository's default branch as last recorded, None when it never was."""
    repository = records["repository"].c
    query = sa.select(repository.default_branch).where(sa.func.lower(repository.repo) == repo.lower())
    branch: str | None = (
        await tx.run(query.order_by(repository.updated_at.desc().nulls_last()).limit(1))
    ).scalar()
    return branch
