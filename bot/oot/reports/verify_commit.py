"""verify_commit: checks that the commit nightly and periodic reports name exists upstream. Key: its SHA.

Reports are stored as unverified first; if nobody knows the commit, they are marked refused and left out of statistics.
With REPORTS=lenient they count, and are on no commit.
GitHub shows commits of forks in a repository, too: so it has to be on the default branch, the head of a branch, or
pushed there. GitHub is asked only once per commit and backend: requests count against upstream's budget.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypedDict

import sqlalchemy as sa

from bot.core.errors import GitHubRefused, RetryLater
from bot.ingest.tables import records
from bot.oot.reports.mismatches import Flags
from bot.oot.results import jobs
from bot.oot.results.tables import (
    ATTEMPTS,
    BACKEND_OF_HEAD,
    SELF_TRIGGERED,
    WITHOUT_COMMIT,
    oot_workflow_job,
)
from bot.oot.statistics.countable_jobs import flagged

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

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
    unknown: bool  # nobody knows this commit
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
    found: list[CommitStatus] = []
    for place in _places([sha]):
        found += await _statuses(tx, place)
    return found


async def _statuses(tx: Transaction, place: sa.ColumnElement[bool]) -> list[CommitStatus]:
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
    columns = (JOB.job_key, JOB.downstream_repo, JOB.upstream_repo, JOB.flags, JOB.received_at)
    query = sa.select(*columns, *(JOB[name] for name in ATTEMPTS)).where(
        JOB.head_sha == sha, *UNASKED, UNVERIFIED
    )
    query = query.order_by(JOB.job_key).limit(PAGE)
    rows = await tx.rows_as(_UnverifiedJob, query if tx.sqlite else query.with_for_update())
    if not rows:
        return False
    tx.note_changed("oot_workflow_job", ({**row, "head_sha": sha} for row in rows))
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


async def counts(tx: Transaction, commits: Collection[Commit]) -> dict[Commit, int]:
    """Return how many jobs nobody dispatched were reported on these commits; without commits that have none."""
    return await _of_each(tx, commits, sa.func.count())


async def lengths_of_tests(tx: Transaction, commits: Collection[Commit]) -> dict[Commit, int]:
    """Return how many characters of failed tests those jobs hold; without commits that have none."""
    return await _of_each(tx, commits, jobs.LENGTH_OF_TESTS)


async def _of_each(tx: Transaction, commits: Collection[Commit], what: Any) -> dict[Commit, int]:
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
    """Return where the jobs of some commits are; of those that nobody knows only the id is left."""
    return JOB.head_sha.in_(sorted(ids)), sa.and_(JOB.delivery_id.in_(sorted(ids)), WITHOUT_COMMIT)


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


AGAIN, PATIENCE = 3600.0, 24 * 3_600_000  # seconds until GitHub is asked again, milliseconds it is asked for
ON_DEFAULT_BRANCH = frozenset({"behind", "identical"})


async def run(context: Context, task: Task) -> None:
    """Find out which repository has the commit, from our own rows if possible, and settle its reports."""
    async with context.store.read() as tx:
        found = await statuses(tx, task.key)
        pushed = [repo for repo in context.settings.upstream_repo if await was_pushed(tx, repo, task.key)]
    waiting = [some for some in found if some["unverified"]]
    settled = [some for some in found if not some["unverified"]]
    if not waiting:
        return
    homes = [*pushed, *(some["upstream_repo"] for some in settled if not some["unknown"])]
    if homes:
        home: str | None = homes[0]
    # a backend that names a commit too early must not spoil it for others
    elif {some["backend"] for some in waiting} <= {some["backend"] for some in settled}:
        home = None
    else:
        home = await _ask(context, task.key, since=min(some["since"] for some in waiting))
    more, leniently = True, context.settings.reports == "lenient"
    while more:
        async with context.store.transaction() as tx:
            more = await settle(tx, task.key, home, leniently=leniently)


async def _ask(context: Context, sha: str, *, since: int) -> str | None:
    """Return the watched repository that has the commit, None when none has, or none could be asked for a day.

    Raises RetryLater when one could not be asked, `since` less than a day.
    """
    refusal: GitHubRefused | None = None
    for repo in context.settings.upstream_repo:
        try:
            if await _is_in(context, repo, sha, since=since):
                return repo
        except GitHubRefused as error:
            refusal = error
    # no access: that may be granted later, but reports do not wait forever
    if refusal is not None and context.clock.now() - since < PATIENCE:
        raise RetryLater(f"commit {sha} cannot be asked for: {refusal}", after=AGAIN) from refusal
    return None


async def _is_in(context: Context, repo: str, sha: str, *, since: int) -> bool:
    """Return whether a commit is on a repository's default branch or the head of a branch; raises GitHubRefused."""
    client = context.github.client(repo, since=since, contents="read")
    async with context.store.read() as tx:
        branch = await default_branch(tx, repo)
    if branch is None:
        branch = (await client.repository())["default_branch"]
    try:
        url = client.path("compare/{basehead}{?per_page}")
        compared = await client.getitem(url, {"basehead": f"{branch}...{sha}", "per_page": "1"})
        if compared["status"] in ON_DEFAULT_BRANCH:
            return True
        heads = await client.getitem(client.path("commits/{sha}/branches-where-head"), {"sha": sha})
    except GitHubRefused as error:
        if not error.gone:
            raise
        return False
    return bool(heads)
