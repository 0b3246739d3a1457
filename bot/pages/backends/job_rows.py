"""Statements of pages on jobs and dispatches of backends, on commits and pull requests, with their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar

import sqlalchemy as sa

from bot.db.rows import select
from bot.ingest.record_rows import CheckRunRow, WorkflowJobRow
from bot.ingest.tables import records
from bot.oot.results.jobs import (
    NEWEST_JOBS,
    SIZE,
    WITHOUT_TESTS,
    SizedJobRow,
    fitting_tests,
    has_event,
    rows_with_tests,
)
from bot.oot.results.tables import (
    BACKEND_OF_HEAD,
    ENDED_UNANSWERED,
    DispatchRow,
    JobIdentity,
    JobName,
    JobOrigin,
    JobOutcome,
    JobPage,
    JobRow,
    JobSubject,
    JobTests,
    JobTimes,
    oot_dispatch,
    oot_workflow_job,
)
from bot.oot.statistics.countable_jobs import COUNTS, HAS_REPORTS, has_flag
from bot.oot.statistics.readiness import MeasuredJob
from bot.oot.statistics.stats import FAILED, OUTCOMES
from bot.pages.backends.job_matrix import GridJob

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bot.db.rows import TypedSelect
    from bot.db.transaction import Transaction

S = TypeVar("S", bound=sa.Select[*tuple[Any, ...]])
JOB, DISPATCH = oot_workflow_job.c, oot_dispatch.c
UPSTREAM_JOB, CHECK, PULL = records["workflow_job"].c, records["check_run"].c, records["pull_request"].c
BACKEND = sa.func.lower(JOB.downstream_repo)
MOST_UNANSWERED = 20  # newest dispatches
MOST_RELAYED = 2_000  # jobs reported by an outside relay that are shown of one pull request
SEARCHED = (300, 2_000, 6_000)  # newest jobs searched for the newest commits, until there are enough
MOST_MEASURED = 50_000  # of one backend
MOST_FAILED = 500  # newest jobs whose failed tests are compared
MOST_STREAK = 1_000  # jobs that are looked at for a streak


@dataclass(frozen=True, kw_only=True)
class JobFilter:
    """Which jobs of a backend to read."""

    backend: str
    since: int  # epoch milliseconds
    events: Collection[str]
    hidden: Collection[str]  # case folded names of upstreams that may not be shown
    until: int | None = None  # epoch milliseconds, not included; None: to now


class PullTitle(NamedTuple):
    """Title and author of a pull request; both are empty where it is unknown."""

    title: str
    author: str


class PullHead(TypedDict):
    """A pull request and one of its heads."""

    repo: str
    number: int
    head_sha: str


class LoweringJob(JobIdentity, JobOutcome, JobSubject, JobPage, JobName, JobOrigin):
    """A job that counts as failed."""


class FailedJobRow(JobIdentity, JobSubject, JobTests):
    """A job that failed, with its failed tests."""


class EndedJob(JobOutcome, JobSubject, JobTimes):
    """The columns that tell how a run ended."""


@dataclass(frozen=True, kw_only=True)
class BackendRun:
    """A run of a backend: its jobs for one dispatch."""

    job: EndedJob  # the newest of them
    failed: bool
    at: int  # epoch milliseconds: its first report

    @property
    def repo(self) -> str:
        """The upstream whose commit it was about."""
        return self.job["upstream_repo"]

    @property
    def sha(self) -> str | None:
        """The commit it was about."""
        return self.job["head_sha"]


@dataclass(frozen=True, kw_only=True)
class Streak:
    """A backend's newest failures in a row, and the run that passed before them."""

    failing: int
    first_bad: BackendRun | None
    last_good: BackendRun | None

    @property
    def since(self) -> int | None:
        """When the first of them failed, None where the newest run passed."""
        return self.first_bad.at if self.first_bad else None


async def jobs_of_pull(
    tx: Transaction, names: Iterable[str], number: int, *, sha: str | None, limit: int
) -> list[JobRow]:
    """Return the newest jobs of a pull request or of one of its heads: every attempt, oldest first."""
    query = _of_pull(names, number)
    return await _newest_jobs(tx, query if sha is None else query.where(JOB.head_sha == sha), limit)


async def jobs_without_dispatch(tx: Transaction, names: Iterable[str], number: int) -> list[JobRow]:
    """Return the newest jobs of a pull request that an outside relay reported without a dispatch of ours."""
    return await _newest_jobs(tx, _of_pull(names, number).where(JOB.dispatch_id.is_(None)), MOST_RELAYED)


async def jobs_of_push(tx: Transaction, repo: str, sha: str, *, limit: int) -> list[JobRow]:
    """Return the newest jobs on a commit (or the beginning of its SHA) outside pull requests, oldest first."""
    query = WITHOUT_TESTS.where(
        *_begins(JOB.head_sha, sha), sa.func.lower(JOB.upstream_repo) == repo.lower(), JOB.pr_number.is_(None)
    )
    return await _newest_jobs(tx, query, limit)


async def jobs_on_commit(
    tx: Transaction, repo: str, sha: str, *, limit: int, events: Iterable[str] | None = None
) -> list[JobRow]:
    """Return the newest jobs on commits of a repository that begin with `sha`, of any event, newest first."""
    query = WITHOUT_TESTS.where(
        *_begins(JOB.head_sha, sha), sa.func.lower(JOB.upstream_repo) == repo.lower(), has_event(events)
    )
    order = (JOB.received_at.desc(), JOB.run_attempt.desc(), JOB.job_key)
    return await rows_with_tests(tx, query.order_by(*order).limit(limit))


async def dispatches_of_push(tx: Transaction, repo: str, sha: str, *, limit: int) -> list[DispatchRow]:
    """Return the newest dispatches for a pushed commit, oldest first."""
    query = select(DispatchRow, oot_dispatch).where(
        *_begins(DISPATCH.head_sha, sha),
        sa.func.lower(DISPATCH.upstream_repo) == repo.lower(),
        DISPATCH.pr_number.is_(None),
    )
    order = (DISPATCH.created_at.desc(), DISPATCH.id.desc())
    return (await tx.fetch(query.order_by(*order).limit(limit)))[::-1]


async def grid_jobs(tx: Transaction, wanted: JobFilter, *, commits: int, limit: int) -> list[GridJob]:
    """Return the jobs of the newest commits and one more, newest first; at most `limit`."""
    grid = select(GridJob, oot_workflow_job, run_received_at=JOB.received_at)
    query = _matching(grid, wanted, backend=BACKEND_OF_HEAD).where(
        await _on_newest_commits(tx, wanted, commits + 1)
    )
    rows = await tx.fetch(query.order_by(JOB.received_at.desc()).limit(limit))
    began: dict[tuple[str, str], int] = {}
    for row in reversed(rows):
        began.setdefault((row["delivery_id"], row["run_id"]), row["received_at"])
    for row in rows:
        row["run_received_at"] = began[row["delivery_id"], row["run_id"]]
    return rows


async def failed_tests(tx: Transaction, wanted: JobFilter, *, limit: int) -> list[JobRow]:
    """Return the failed tests of the newest jobs that have any, newest first, as far as they fit."""
    failing = (JOB.failed_tests_json.is_not(None), JOB.failed_tests > 0)
    sizes = _matching(sa.select(JOB.job_key, SIZE), wanted).where(*failing)
    keys = fitting_tests(map(tuple, await tx.run(sizes.order_by(JOB.received_at.desc()).limit(limit))))
    query = select(JobRow, oot_workflow_job).where(JOB.job_key.in_(keys))
    return await tx.fetch(query.order_by(JOB.received_at.desc()))


async def count_unnamed_failures(tx: Transaction, wanted: JobFilter) -> tuple[int, int]:
    """Return how many failed tests were only counted, not named, and by how many attempts of jobs."""
    query = sa.select(sa.func.coalesce(sa.func.sum(JOB.failed_tests), 0), sa.func.count())
    unnamed = (JOB.failed_tests > 0, len("[]") >= SIZE)
    (counted,) = await tx.run(_matching(query, wanted).where(*unnamed))
    return int(counted[0]), int(counted[1])


async def unanswered_dispatches(
    tx: Transaction, backend: str, *, since: int, hidden: Collection[str]
) -> list[DispatchRow]:
    """Return the newest dispatches to a backend that ended without a report, except for `hidden` upstreams."""
    query = select(DispatchRow, oot_dispatch).where(
        DISPATCH.backend_key == backend.casefold(),
        DISPATCH.created_at >= since,
        ENDED_UNANSWERED,
        ~HAS_REPORTS,
        sa.func.lower(DISPATCH.upstream_repo).not_in(sorted(hidden)),
    )
    order = (DISPATCH.created_at.desc(), DISPATCH.id.desc())
    return await tx.fetch(query.order_by(*order).limit(MOST_UNANSWERED))


async def titles_of_pulls(tx: Transaction, repo: str, numbers: Collection[int]) -> dict[int, PullTitle]:
    """Return the title and author of pull requests, by number."""
    query = sa.select(PULL.number, PULL.title, PULL.user_login).where(
        sa.func.lower(PULL.repo) == repo.lower(), PULL.number.in_(sorted(numbers))
    )
    return {number: PullTitle(title or "", author or "") for number, title, author in await tx.run(query)}


async def titles_of_commits(tx: Transaction, repo: str, shas: Collection[str]) -> dict[str, tuple[str, str]]:
    """Return the title and author of pushed commits, and of the pull requests of heads."""
    push, head = records["push"].c, records["pull_head"].c
    title_of_pull = (
        sa.select(head.head_sha, PULL.title, PULL.user_login)
        .join(records["pull_request"], (PULL.number == head.number) & (PULL.repo == head.repo))
        .where(head.head_sha.in_(sorted(shas)), sa.func.lower(head.repo) == repo.lower())
    )
    pushed = sa.select(push.after, push.head_commit_message, push.pusher_name).where(
        push.after.in_(sorted(shas)), sa.func.lower(push.repo) == repo.lower()
    )
    titles: dict[str, tuple[str, str]] = {}
    for query in (title_of_pull, pushed):
        for sha, title, author in await tx.run(query):
            titles[sha] = ((title or "").partition("\n")[0], author or "")
    return titles


async def pull_of_head(tx: Transaction, repo: str, sha: str) -> PullHead | None:
    """Return the newest pull request with a head that begins with `sha`."""
    seen = records["pull_head"].c
    sources = (
        (seen.repo, seen.number, seen.head_sha, seen.received_at),
        (DISPATCH.upstream_repo, DISPATCH.pr_number, DISPATCH.head_sha, DISPATCH.created_at),
        (JOB.upstream_repo, JOB.pr_number, JOB.head_sha, JOB.received_at),
    )
    for name, number, head, at in sources:
        query = sa.select(name.label("repo"), number.label("number"), head.label("head_sha")).where(
            *_begins(head, sha), sa.func.lower(name) == repo.lower(), number.is_not(None)
        )
        if pull_head := await tx.row_as(PullHead, query.order_by(at.desc()).limit(1)):
            return pull_head
    return None


async def full_sha(tx: Transaction, repo: str, sha: str) -> str | None:
    """Complete the SHA of a commit that any of our rows is about."""
    push = records["push"].c
    for column, name in (
        (DISPATCH.head_sha, DISPATCH.upstream_repo), (JOB.head_sha, JOB.upstream_repo),
        (UPSTREAM_JOB.head_sha, UPSTREAM_JOB.repo), (CHECK.head_sha, CHECK.repo),
    ):  # fmt: skip
        query = sa.select(column).where(*_begins(column, sha), sa.func.lower(name) == repo.lower())
        if full := (await tx.run(query.limit(1))).scalar():
            return str(full)
    pushed = sa.select(push.after).where(push.after == sha, sa.func.lower(push.repo) == repo.lower())
    full = (await tx.run(pushed.limit(1))).scalar()
    return str(full) if full else None


async def upstream_jobs(tx: Transaction, repo: str, sha: str, *, limit: int) -> list[WorkflowJobRow]:
    """Return the repository's own newest workflow jobs on a commit: every attempt, oldest first."""
    query = select(WorkflowJobRow, records["workflow_job"], steps=sa.null()).where(
        UPSTREAM_JOB.head_sha == sha,
        sa.func.lower(UPSTREAM_JOB.repo) == repo.lower(),
        UPSTREAM_JOB.deleted_at.is_(None),
    )
    order = (UPSTREAM_JOB.received_at.desc(), UPSTREAM_JOB.id.desc())
    return (await tx.fetch(query.order_by(*order).limit(limit)))[::-1]


async def upstream_checks(tx: Transaction, repo: str, sha: str, *, limit: int) -> list[CheckRunRow]:
    """Return the newest check runs on a commit, including ours and those of workflow jobs, oldest first."""
    query = select(CheckRunRow, records["check_run"], output_summary=sa.null()).where(
        CHECK.head_sha == sha, sa.func.lower(CHECK.repo) == repo.lower(), CHECK.deleted_at.is_(None)
    )
    order = (CHECK.received_at.desc(), CHECK.id.desc())
    return (await tx.fetch(query.order_by(*order).limit(limit)))[::-1]


async def lowering_jobs(
    tx: Transaction, backend: str, *, since: int, upstreams: Collection[str], limit: int
) -> list[LoweringJob]:
    """Return a backend's newest jobs for these upstream repositories that count as failed."""
    query = select(LoweringJob, oot_workflow_job).where(
        sa.func.lower(JOB.downstream_repo) == backend.casefold(),
        JOB.received_at >= since,
        JOB.status == "completed",
        JOB.conclusion.in_([word for word, end in OUTCOMES.items() if end in FAILED]),
        sa.func.lower(JOB.upstream_repo).in_([upstream.lower() for upstream in upstreams]),
        COUNTS,
        ~has_flag("refused"),
    )
    return await tx.fetch(query.order_by(JOB.received_at.desc(), JOB.job_key).limit(limit))


async def measured_jobs(
    tx: Transaction, backend: str, *, since: int, hidden: Collection[str]
) -> list[MeasuredJob]:
    """Return a backend's completed jobs of pull requests, each at its latest attempt, newest first."""
    query = select(MeasuredJob, oot_workflow_job).where(*_pull_jobs_of(backend, since, hidden), COUNTS)
    return await tx.fetch(query.order_by(JOB.received_at.desc()).limit(MOST_MEASURED))


async def failed_pull_jobs(
    tx: Transaction, backend: str, *, since: int, hidden: Collection[str]
) -> list[FailedJobRow]:
    """Return the newest of these jobs that failed and named the tests that did."""
    query = select(FailedJobRow, oot_workflow_job).where(
        *_pull_jobs_of(backend, since, hidden),
        COUNTS,
        JOB.conclusion == "failure",
        JOB.head_sha.is_not(None),
        JOB.failed_tests_json.is_not(None),
    )
    return await tx.fetch(query.order_by(JOB.received_at.desc()).limit(MOST_FAILED))


async def read_streak(tx: Transaction, backend: str, *, hidden: Collection[str]) -> Streak:
    """Find out since when a backend fails, from its newest jobs; ignores those of `hidden` upstreams."""
    query = select(EndedJob, oot_workflow_job).where(
        sa.func.lower(JOB.downstream_repo) == backend.lower(),
        sa.func.lower(JOB.upstream_repo).not_in(sorted(hidden)),
        ~has_flag("refused"),
        COUNTS,
    )
    jobs = await tx.fetch(query.order_by(JOB.received_at.desc()).limit(MOST_STREAK))
    return find_streak(_runs(jobs))


def find_streak(runs: Sequence[BackendRun]) -> Streak:
    """Find the newest failures in a row; `runs` are newest first."""
    good = next((at for at, run in enumerate(runs) if not run.failed), None)
    failing = runs[:good]
    return Streak(
        failing=len(failing),
        first_bad=failing[-1] if failing else None,
        last_good=None if good is None else runs[good],
    )


async def _on_newest_commits(tx: Transaction, wanted: JobFilter, most: int) -> sa.ColumnElement[bool]:
    """Return the condition for being on one of the newest commits; searches as few jobs as possible."""
    shas: list[str | None] = []
    for searched in SEARCHED:
        part = _matching(sa.select(JOB.head_sha, JOB.received_at), wanted).order_by(JOB.received_at.desc())
        newest = part.limit(searched).subquery().c
        query = sa.select(newest.head_sha).group_by(newest.head_sha)
        query = query.order_by(sa.func.max(newest.received_at).desc()).limit(most)
        shas = list((await tx.run(query)).scalars())
        if len(shas) == most:
            break
    known = JOB.head_sha.in_([sha for sha in shas if sha is not None])
    return known | JOB.head_sha.is_(None) if None in shas else known


async def _newest_jobs(tx: Transaction, query: TypedSelect[SizedJobRow], limit: int) -> list[JobRow]:
    """Return the newest jobs of a query, oldest first."""
    return (await rows_with_tests(tx, query.order_by(*NEWEST_JOBS).limit(limit)))[::-1]


def _of_pull(names: Iterable[str], number: int) -> TypedSelect[SizedJobRow]:
    return WITHOUT_TESTS.where(JOB.upstream_repo.in_(list(names)), JOB.pr_number == number)


def _begins(column: sa.Column[Any], sha: str) -> tuple[sa.ColumnElement[bool], ...]:
    return column >= sha, column < sha + "g"  # the first letter after the digits of a SHA


def _matching(query: S, wanted: JobFilter, *, backend: sa.ColumnElement[str] = BACKEND) -> S:
    query = query.where(
        backend == wanted.backend.lower(),
        JOB.received_at >= wanted.since,
        JOB.event_type.in_(sorted(wanted.events)),
        ~has_flag("refused"),
    )
    if wanted.until is not None:
        query = query.where(JOB.received_at < wanted.until)
    if wanted.hidden:
        query = query.where(sa.func.lower(JOB.upstream_repo).not_in(sorted(wanted.hidden)))
    return query


def _pull_jobs_of(backend: str, since: int, hidden: Collection[str]) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        sa.func.lower(JOB.downstream_repo) == backend.casefold(),
        JOB.received_at >= since,
        JOB.status == "completed",
        JOB.pr_number.is_not(None),
        sa.func.lower(JOB.upstream_repo).not_in(sorted(hidden)),
        ~has_flag("refused"),
    )


def _runs(jobs: Iterable[EndedJob]) -> list[BackendRun]:
    """Return the runs with a result, newest first: a run failed if any of its jobs did."""
    by_delivery: dict[str, BackendRun] = {}
    for job in jobs:
        outcome = OUTCOMES.get(job["conclusion"] or "")
        if outcome != "success" and outcome not in FAILED:
            continue
        newest = by_delivery.get(job["delivery_id"])
        by_delivery[job["delivery_id"]] = BackendRun(
            job=newest.job if newest else job,
            failed=outcome in FAILED or (newest is not None and newest.failed),
            at=job["received_at"],
        )
    return list(by_delivery.values())
