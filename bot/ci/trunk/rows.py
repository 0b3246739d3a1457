"""Reads of the grid: commits of a branch, and what ran on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypedDict

import msgspec
import sqlalchemy as sa

from bot.ci.trunk.tables import branch_commit, ci_cell, ci_column, ci_commit
from bot.db.statements import Statement
from bot.ingest.tables import records
from bot.oot.results.tables import oot_workflow_job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence

    from bot.db.transaction import Transaction

BRANCHES_MOST = 200
COMMIT, CELL, COLUMN, STORED = branch_commit.c, ci_cell.c, ci_column.c, ci_commit.c
REPOSITORY, RUN, CHECK = records["repository"].c, records["workflow_run"].c, records["check_run"].c
JOB = oot_workflow_job.c
ON_TRUNK = ("push", "nightly", "periodic")  # events whose results are about a commit of a branch
SHA_OF_SQLITE = 900  # texts in one IN


class RepositoryRow(TypedDict):
    """A repository as last recorded."""

    repository_id: int
    full_name: str
    default_branch: str | None


class CommitRow(TypedDict):
    """A commit of a branch."""

    repository_id: int
    branch: str
    sha: str
    parent: str | None
    replaces: str | None
    at: int
    title: str
    author: str | None
    pr_number: int | None
    folded: int
    gone: bool


class ColumnRow(TypedDict):
    """A job, named without shard and runner."""

    id: int
    repository_id: int
    workflow: str
    job: str
    base_name: str
    config: str
    flags: str


class RunRow(TypedDict):
    """What the grid needs of a workflow run."""

    id: int
    run_attempt: int
    head_sha: str
    name: str | None
    event: str | None
    triggering_actor_login: str | None
    status: str | None
    conclusion: str | None
    path: str | None
    updated_at: int | None
    unstarted: bool  # it ended before GitHub made its jobs


class BackendJobRow(TypedDict):
    """What the grid needs of a backend's job."""

    head_sha: str
    downstream_repo: str
    workflow_name: str
    job_name: str
    run_id: str
    run_attempt: int
    job_key: str
    status: str
    conclusion: str | None
    completed_at: int | None
    event_type: str
    workflow_run_url: str | None


class CheckRow(TypedDict):
    """What the grid needs of another App's check run."""

    id: int
    head_sha: str
    app_slug: str | None
    name: str | None
    status: str | None
    conclusion: str | None
    completed_at: int | None


class TimedJobRow(TypedDict):
    """A job on a commit, with its times in epoch milliseconds."""

    job_id: int
    shard: int
    shards: int
    state: int
    conclusion: int
    queued_at: int | None
    started_at: int | None
    completed_at: int | None
    workflow: str
    job: str


class StoredRow(NamedTuple):
    """The cells of a commit as they were last made."""

    mark: int
    cells: bytes | None  # None: something has changed since


class CellRow(msgspec.Struct, frozen=True, gc=False):
    """A row of ci_cell as the grid reads it; there are many thousands, which the garbage collector need not look at."""

    head_sha: str
    column_id: int
    numbered_column_id: int | None
    job_id: int
    run_id: int
    attempt: int
    shard: int
    shards: int
    state: int
    conclusion: int
    started_at: int | None
    completed_at: int | None
    line: str | None
    signature: str | None
    tests_failed: int | None
    failed_tests: str | None
    failure_kind: str | None


_CELL = [CELL[name] for name in CellRow.__struct_fields__]


# built once, since every page asks
_OF_REPOSITORY: sa.BindParameter[int] = sa.bindparam("repository")
_SHAS: sa.BindParameter[str] = sa.bindparam("shas", expanding=True)
EVER = 2**62  # later than any time
_COMMITS = Statement(
    sa.select(branch_commit)
    .where(
        COMMIT.repository_id == _OF_REPOSITORY,
        COMMIT.branch == sa.bindparam("branch"),
        COMMIT.at <= sa.bindparam("until"),
    )
    .order_by(COMMIT.at.desc(), COMMIT.sha.desc())
    .limit(sa.bindparam("most"))
)
_STORED_CELLS = Statement(
    sa.select(STORED.head_sha, STORED.mark, STORED.cells).where(
        STORED.repository_id == _OF_REPOSITORY, STORED.head_sha.in_(_SHAS)
    )
)
_STORED_OUTLINES = Statement(
    sa.select(STORED.head_sha, STORED.mark, STORED.outline).where(
        STORED.repository_id == _OF_REPOSITORY, STORED.head_sha.in_(_SHAS), STORED.cells.is_not(None)
    )
)
_of_repository = sa.select(ci_column).where(COLUMN.repository_id == _OF_REPOSITORY)
_ALL_COLUMNS = Statement(_of_repository)
_COLUMNS = Statement(_of_repository.where(COLUMN.id.in_(sa.bindparam("ids", expanding=True))))
# of a file that it cannot read GitHub knows no name, and says no more than that the run failed
_UNSTARTED = sa.case(
    (RUN.conclusion == "startup_failure", sa.true()),
    (
        sa.and_(RUN.conclusion == "failure", RUN.name == RUN.path),
        ~sa.exists().where(
            CELL.repository_id == RUN.repository_id,
            CELL.head_sha == RUN.head_sha,
            CELL.run_id == RUN.id,
            CELL.attempt == RUN.run_attempt,
        ),
    ),
    else_=sa.false(),
)
_runs = sa.select(
    *(RUN[name] for name in RunRow.__annotations__ if name in RUN), _UNSTARTED.label("unstarted")
).where(RUN.head_sha.in_(_SHAS), RUN.repository_id == _OF_REPOSITORY)
_RUNS = Statement(_runs)
_TELLING_RUNS = Statement(_runs.where(RUN.status.is_distinct_from("completed") | _UNSTARTED))
_BACKEND_JOBS = Statement(
    sa.select(*(JOB[name] for name in BackendJobRow.__annotations__), JOB.flags).where(
        JOB.head_sha.in_(_SHAS),
        sa.func.lower(JOB.upstream_repo).in_(sa.bindparam("names", expanding=True)),
        JOB.event_type.in_(ON_TRUNK),
        JOB.pr_number.is_(None),
    )
)
_NEWEST_RECORD = Statement(
    sa.select(REPOSITORY.repository_id, REPOSITORY.full_name, REPOSITORY.default_branch)
    .where(
        REPOSITORY.repository_id.in_(sa.bindparam("ids", expanding=True)), REPOSITORY.full_name.is_not(None)
    )
    .order_by(REPOSITORY.updated_at.desc().nulls_last())
    .limit(1)
)


async def repository(tx: Transaction, ids: Collection[int]) -> RepositoryRow | None:
    """Return the newest record of a repository that has or had a name."""
    return await tx.row_as(RepositoryRow, _NEWEST_RECORD, {"ids": sorted(ids)})


async def branches(tx: Transaction, repository_id: int) -> list[str]:
    """Return the branches that have commits, those with the newest ones first."""
    return list((await tx.run(_branches(repository_id).limit(BRANCHES_MOST))).scalars())


async def every_branch(tx: Transaction, repository_id: int) -> AsyncIterator[str]:
    """Yield all branches that have commits, in the same order."""
    async for part in tx.slices(_branches(repository_id), size=BRANCHES_MOST):
        for row in part:
            yield row["branch"]


def _branches(repository_id: int) -> sa.Select[tuple[str]]:
    query = sa.select(COMMIT.branch).where(COMMIT.repository_id == repository_id).group_by(COMMIT.branch)
    return query.order_by(sa.func.max(COMMIT.at).desc(), COMMIT.branch)


async def commit(tx: Transaction, repository_id: int, branch: str, sha: str) -> CommitRow | None:
    """Return one commit of a branch."""
    query = sa.select(branch_commit).where(
        COMMIT.repository_id == repository_id, COMMIT.branch == branch, COMMIT.sha == sha
    )
    return await tx.row_as(CommitRow, query)


async def branches_of(tx: Transaction, repository_id: int, sha: str) -> list[CommitRow]:
    """Return a commit as a line of each branch that it is one of, by the branches' names."""
    query = sa.select(branch_commit).where(COMMIT.sha == sha, COMMIT.repository_id == repository_id)
    return await tx.rows_as(CommitRow, query.order_by(COMMIT.branch).limit(BRANCHES_MOST))


async def following(tx: Transaction, commit: CommitRow) -> str | None:
    """Return a commit that was pushed onto another one of its branch."""
    query = sa.select(COMMIT.sha).where(
        COMMIT.repository_id == commit["repository_id"],
        COMMIT.branch == commit["branch"],
        COMMIT.at >= commit["at"],
        COMMIT.parent == commit["sha"],
    )
    found: str | None = (await tx.run(query.order_by(COMMIT.at, COMMIT.sha).limit(1))).scalar()
    return found


async def commits(
    tx: Transaction, repository_id: int, branch: str, *, until: int | None, limit: int
) -> list[CommitRow]:
    """Return the newest commits of a branch by their own times, none later than `until` (epoch milliseconds)."""
    values = {"repository": repository_id, "branch": branch, "most": limit}
    values["until"] = EVER if until is None else until
    return await tx.rows_as(CommitRow, _COMMITS, values)


async def cells(
    tx: Transaction, repository_id: int, shas: Sequence[str], only: Collection[int] | None = None
) -> list[CellRow]:
    """Return every job on some commits, or those of some columns."""
    if not shas:
        return []  # of commits with stored cells nothing is asked
    query = sa.select(*_CELL).where(CELL.repository_id == repository_id, CELL.head_sha.in_(shas))
    if only is not None and len(only) <= SHA_OF_SQLITE:
        query = query.where(CELL.column_id.in_(sorted(only)))
    return [CellRow(*row) for row in (await tx.run(query)).all()]


async def timed_jobs(
    tx: Transaction, repository_ids: Collection[int], sha: str, *, limit: int
) -> list[TimedJobRow]:
    """Return the jobs on a commit with their times, those that ended last or go on first."""
    names = ("job_id", "shard", "shards", "state", "conclusion", "queued_at", "started_at", "completed_at")
    query = sa.select(*(CELL[name] for name in names), COLUMN.workflow, COLUMN.job).where(
        CELL.repository_id.in_(sorted(repository_ids)), CELL.head_sha == sha, COLUMN.id == CELL.column_id
    )
    order = (CELL.completed_at.desc().nulls_first(), CELL.job_id)
    return await tx.rows_as(TimedJobRow, query.order_by(*order).limit(limit))


async def stored_cells(tx: Transaction, repository_id: int, shas: Sequence[str]) -> dict[str, StoredRow]:
    """Return what is stored of some commits that jobs ran on."""
    found = (await tx.run(_STORED_CELLS, {"repository": repository_id, "shas": shas})).all()
    return {sha: StoredRow(mark=mark, cells=cells) for sha, mark, cells in found}


async def stored_outlines(
    tx: Transaction, repository_id: int, shas: Sequence[str]
) -> dict[str, tuple[int, bytes | None]]:
    """Return the marks of the commits that have stored cells, and their outlines."""
    found = (await tx.run(_STORED_OUTLINES, {"repository": repository_id, "shas": shas})).all()
    return {sha: (mark, outline) for sha, mark, outline in found}


async def columns(
    tx: Transaction, repository_id: int, ids: Collection[int] | None = None
) -> dict[int, ColumnRow]:
    """Return columns by id; all of a repository's without `ids`, or where that is the cheaper question."""
    if ids is not None and len(ids) <= SHA_OF_SQLITE:
        found = await tx.rows_as(ColumnRow, _COLUMNS, {"repository": repository_id, "ids": sorted(ids)})
    else:
        found = await tx.rows_as(ColumnRow, _ALL_COLUMNS, {"repository": repository_id})
    return {row["id"]: row for row in found}


async def runs(tx: Transaction, repository_id: int, shas: Sequence[str]) -> list[RunRow]:
    """Return the workflow runs on some commits, every attempt."""
    return await tx.rows_as(RunRow, _RUNS, {"repository": repository_id, "shas": shas}) if shas else []


async def telling_runs(tx: Transaction, repository_id: int, shas: Sequence[str]) -> list[RunRow]:
    """Return those workflow runs on some commits that say more than their jobs: unfinished, or never started."""
    values = {"repository": repository_id, "shas": shas}
    return await tx.rows_as(RunRow, _TELLING_RUNS, values) if shas else []


async def backend_jobs(tx: Transaction, names: Collection[str], shas: Sequence[str]) -> list[BackendJobRow]:
    """Return what backends reported on some commits of a repository (any of its names, case folded)."""
    found = await tx.rows_as(BackendJobRow, _BACKEND_JOBS, {"names": sorted(names), "shas": shas})
    return [row for row in found if "refused" not in row["flags"]]  # type: ignore[typeddict-item]


async def checks(tx: Transaction, repository_id: int, shas: Sequence[str], *, ours: int) -> list[CheckRow]:
    """Return the check runs of other Apps on some commits; those of GitHub Actions are jobs."""
    wanted = (CHECK[name] for name in CheckRow.__annotations__)
    query = sa.select(*wanted).where(
        CHECK.head_sha.in_(shas),
        CHECK.repository_id == repository_id,
        CHECK.app_id != ours,
        CHECK.app_slug != "github-actions",
    )
    return await tx.rows_as(CheckRow, query)
