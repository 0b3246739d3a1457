"""Reads of the grid: commits of a branch, and what ran on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.db.rows import Millis, Text, select
from bot.db.statements import RowStatement, Statement
from bot.ingest.record_rows import CheckRunRow, RecordStart, WorkflowRunRow
from bot.ingest.tables import records
from bot.jobs.tables import (
    CellRow,
    ColumnRow,
    CommitRow,
    JobColumn,
    JobElsewhere,
    JobHold,
    JobShard,
    JobState,
    JobTimes,
    branch_commit,
    ci_cell,
    ci_column,
    ci_commit,
)
from bot.oot.results.tables import (
    JobFlags,
    JobKey,
    JobName,
    JobOrigin,
    JobOutcome,
    JobPage,
    JobRun,
    JobSubject,
    oot_workflow_job,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence

    from bot.db.transaction import Transaction

BRANCHES_MOST = 200
COMMIT, CELL, COLUMN, STORED = branch_commit.c, ci_cell.c, ci_column.c, ci_commit.c
REPOSITORY, RUN, CHECK = records["repository"].c, records["workflow_run"].c, records["check_run"].c
JOB = oot_workflow_job.c
ON_TRUNK = ("push", "nightly", "periodic")  # events whose results are about a commit of a branch
SHA_OF_SQLITE = 900  # texts in one IN
# built once, since every page asks
_OF_REPOSITORY: sa.BindParameter[int] = sa.bindparam("repository")
_SHAS: sa.BindParameter[str] = sa.bindparam("shas", expanding=True)
EVER = 2**62  # later than any time
_first = ci_cell.alias("first")
# whether it is more than the copy of a job that had passed: a re-run lists these again, with their times
ORIGINAL = sa.or_(
    CELL.attempt == 1,
    ~sa.exists().where(
        _first.c.repository_id == CELL.repository_id,
        _first.c.head_sha == CELL.head_sha,
        _first.c.column_id == CELL.column_id,
        _first.c.run_id == CELL.run_id,
        _first.c.shard == CELL.shard,
        _first.c.attempt < CELL.attempt,
        _first.c.conclusion == CELL.conclusion,
        _first.c.started_at == CELL.started_at,
        _first.c.completed_at == CELL.completed_at,
    ),
)
MARKED_COMMITS = 60  # newest; the page of a branch shows fewer at first


class RepositoryRow(RecordStart):
    """The newest record of a repository."""

    full_name: Text
    default_branch: Text | None


class RunRow(WorkflowRunRow):
    """A workflow run."""

    unstarted: bool  # it ended before GitHub made its jobs


class BackendJobRow(JobKey, JobOutcome, JobSubject, JobPage, JobName, JobRun, JobOrigin, JobFlags):
    """What the grid needs of a backend's job."""

    completed_at: Millis | None


class TimedJobRow(JobColumn, JobShard, JobState, JobTimes, JobHold, JobElsewhere):
    """A job on a commit, with its times."""

    workflow: Text
    job: Text


class StoredRow(NamedTuple):
    """The cells of a commit as last computed."""

    mark: int
    cells: bytes | None  # None: something has changed since


_COMMITS = RowStatement(
    select(CommitRow, branch_commit)
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
_of_repository = select(ColumnRow, ci_column).where(COLUMN.repository_id == _OF_REPOSITORY)
_ALL_COLUMNS = RowStatement(_of_repository)
_COLUMNS_SHOWN_AS = RowStatement(
    _of_repository.where(COLUMN.shown_as.in_(sa.bindparam("names", expanding=True)))
)
_COLUMNS = RowStatement(_of_repository.where(COLUMN.id.in_(sa.bindparam("ids", expanding=True))))
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
_runs = select(RunRow, records["workflow_run"], unstarted=_UNSTARTED).where(
    RUN.head_sha.in_(_SHAS), RUN.repository_id == _OF_REPOSITORY
)
_RUNS = RowStatement(_runs)
_TELLING_RUNS = RowStatement(_runs.where(RUN.status.is_distinct_from("completed") | _UNSTARTED))
_BACKEND_JOBS = RowStatement(
    select(BackendJobRow, oot_workflow_job).where(
        JOB.head_sha.in_(_SHAS),
        sa.func.lower(JOB.upstream_repo).in_(sa.bindparam("names", expanding=True)),
        JOB.event_type.in_(ON_TRUNK),
        JOB.pr_number.is_(None),
    )
)
_NEWEST_RECORD = RowStatement(
    select(RepositoryRow, records["repository"])
    .where(
        REPOSITORY.repository_id.in_(sa.bindparam("ids", expanding=True)), REPOSITORY.full_name.is_not(None)
    )
    .order_by(REPOSITORY.updated_at.desc().nulls_last())
    .limit(1)
)
# whether it has ended, or its run may still let it: some are left unfinished by GitHub for ever
GOES_ON = sa.or_(
    CELL.conclusion != 0,
    ~sa.exists().where(
        RUN.repository_id == CELL.repository_id,
        RUN.id == CELL.run_id,
        sa.or_(
            RUN.run_attempt > CELL.attempt,
            sa.and_(RUN.run_attempt == CELL.attempt, RUN.status == "completed"),
        ),
    ),
)


async def repository(tx: Transaction, ids: Collection[int]) -> RepositoryRow | None:
    """Return the newest record of a repository with one of these ids."""
    return await tx.fetch_first(_NEWEST_RECORD, {"ids": sorted(ids)})


async def branches(tx: Transaction, repository_id: int) -> list[str]:
    """Return the branches that have commits, those with the newest ones first."""
    return list((await tx.run(_branches(repository_id).limit(BRANCHES_MOST))).scalars())


async def every_branch(tx: Transaction, repository_id: int) -> AsyncIterator[str]:
    """Yield all branches that have commits, in the same order."""
    async for part in tx.slices(_branches(repository_id), size=BRANCHES_MOST):
        for row in part:
            yield row["branch"]


async def commit(tx: Transaction, repository_id: int, branch: str, sha: str) -> CommitRow | None:
    """Return one commit of a branch."""
    query = select(CommitRow, branch_commit).where(
        COMMIT.repository_id == repository_id, COMMIT.branch == branch, COMMIT.sha == sha
    )
    return await tx.fetch_first(query)


async def branches_of(tx: Transaction, repository_id: int, sha: str) -> list[CommitRow]:
    """Return the lines of a commit, one for each branch that it is on, by branch name."""
    query = select(CommitRow, branch_commit).where(COMMIT.sha == sha, COMMIT.repository_id == repository_id)
    return await tx.fetch(query.order_by(COMMIT.branch).limit(BRANCHES_MOST))


async def following(tx: Transaction, commit: CommitRow) -> str | None:
    """Return a commit that was pushed onto this one on its branch."""
    query = sa.select(COMMIT.sha).where(
        COMMIT.repository_id == commit["repository_id"],
        COMMIT.branch == commit["branch"],
        COMMIT.at >= commit["at"],
        COMMIT.parent == commit["sha"],
    )
    sha: str | None = (await tx.run(query.order_by(COMMIT.at, COMMIT.sha).limit(1))).scalar()
    return sha


async def commits(
    tx: Transaction, repository_id: int, branch: str, *, until: int | None, limit: int
) -> list[CommitRow]:
    """Return the newest commits of a branch by their own times, none later than `until` (epoch milliseconds)."""
    values = {"repository": repository_id, "branch": branch, "most": limit}
    values["until"] = EVER if until is None else until
    return await tx.fetch(_COMMITS, values)


async def cells(
    tx: Transaction, repository_id: int, shas: Sequence[str], only: Collection[int] | None = None
) -> list[CellRow]:
    """Return every job on some commits, or those of some columns."""
    if not shas:
        return []  # of commits with stored cells nothing is asked
    query = select(CellRow, ci_cell).where(CELL.repository_id == repository_id, CELL.head_sha.in_(shas))
    if only is not None and len(only) <= SHA_OF_SQLITE:
        query = query.where(CELL.column_id.in_(sorted(only)))
    return await tx.fetch(query)


async def cells_elsewhere(tx: Transaction, repository_id: int, sha: str, *, limit: int) -> list[CellRow]:
    """Return the jobs on a commit that ran elsewhere than on GitHub Actions, every attempt."""
    query = select(CellRow, ci_cell).where(
        CELL.repository_id == repository_id, CELL.head_sha == sha, CELL.other_id.is_not(None)
    )
    return await tx.fetch(query.order_by(CELL.job_id).limit(limit))


async def columns_on(tx: Transaction, repository_id: int, sha: str) -> frozenset[int]:
    """Return the columns with a job on a commit."""
    query = sa.select(CELL.column_id).where(CELL.repository_id == repository_id, CELL.head_sha == sha)
    return frozenset((await tx.run(query.distinct())).scalars())


async def timed_jobs(
    tx: Transaction, repository_ids: Collection[int], sha: str, *, limit: int
) -> list[TimedJobRow]:
    """Return the jobs on a commit with their times: unfinished ones first, then those that ended last."""
    query = select(TimedJobRow, ci_cell, ci_column).where(
        CELL.repository_id.in_(sorted(repository_ids)),
        CELL.head_sha == sha,
        COLUMN.id == CELL.column_id,
        ORIGINAL,
        GOES_ON,
    )
    order = (CELL.completed_at.desc().nulls_first(), CELL.job_id)
    return await tx.fetch(query.order_by(*order).limit(limit))


async def stored_cells(tx: Transaction, repository_id: int, shas: Sequence[str]) -> dict[str, StoredRow]:
    """Return what is stored of some commits that jobs ran on."""
    rows = (await tx.run(_STORED_CELLS, {"repository": repository_id, "shas": shas})).all()
    return {sha: StoredRow(mark=mark, cells=cells) for sha, mark, cells in rows}


async def stored_outlines(
    tx: Transaction, repository_id: int, shas: Sequence[str]
) -> dict[str, tuple[int, bytes | None]]:
    """Return the marks and outlines of the commits that have stored cells."""
    rows = (await tx.run(_STORED_OUTLINES, {"repository": repository_id, "shas": shas})).all()
    return {sha: (mark, outline) for sha, mark, outline in rows}


async def columns(
    tx: Transaction, repository_id: int, ids: Collection[int] | None = None
) -> dict[int, ColumnRow]:
    """Return columns by id; all of a repository's without `ids`, or where that query is cheaper."""
    if ids is not None and len(ids) <= SHA_OF_SQLITE:
        rows = await tx.fetch(_COLUMNS, {"repository": repository_id, "ids": sorted(ids)})
    else:
        rows = await tx.fetch(_ALL_COLUMNS, {"repository": repository_id})
    return {row["id"]: row for row in rows}


async def columns_shown_as(
    tx: Transaction, repository_id: int, names: Collection[str]
) -> dict[int, ColumnRow]:
    """Return the columns that GitHub shows under these names of commit statuses."""
    rows = await tx.fetch(_COLUMNS_SHOWN_AS, {"repository": repository_id, "names": sorted(names)})
    return {row["id"]: row for row in rows}


async def runs(tx: Transaction, repository_id: int, shas: Sequence[str]) -> list[RunRow]:
    """Return the workflow runs on some commits, every attempt."""
    return await tx.fetch(_RUNS, {"repository": repository_id, "shas": shas}) if shas else []


async def commits_with_runs(tx: Transaction, repository_id: int, shas: Sequence[str]) -> set[str]:
    """Return those of some commits that have a known workflow run."""
    query = sa.select(RUN.head_sha).where(RUN.repository_id == repository_id, RUN.head_sha.in_(shas))
    return set((await tx.run(query.distinct())).scalars())


async def telling_runs(tx: Transaction, repository_id: int, shas: Sequence[str]) -> list[RunRow]:
    """Return the workflow runs on some commits that say more than their jobs: unfinished or never started ones."""
    values = {"repository": repository_id, "shas": shas}
    return await tx.fetch(_TELLING_RUNS, values) if shas else []


async def backend_jobs(tx: Transaction, names: Collection[str], shas: Sequence[str]) -> list[BackendJobRow]:
    """Return what backends reported on some commits of a repository (any of its names, case folded)."""
    rows = await tx.fetch(_BACKEND_JOBS, {"names": sorted(names), "shas": shas})
    return [row for row in rows if "refused" not in row["flags"]]


async def checks(tx: Transaction, repository_id: int, shas: Sequence[str], *, ours: int) -> list[CheckRunRow]:
    """Return the check runs of other Apps on some commits; those of GitHub Actions are jobs."""
    heavy = {"output_title": sa.null(), "output_summary": sa.null()}
    query = select(CheckRunRow, records["check_run"], **heavy).where(
        CHECK.head_sha.in_(shas),
        CHECK.repository_id == repository_id,
        CHECK.app_id != ours,
        CHECK.app_slug != "github-actions",
    )
    return await tx.fetch(query)


async def read_mark(tx: Transaction, repository_id: int, branch: str) -> tuple[object, ...]:
    """Return the mark: commits with the marks of upstream's jobs, and the last change of the backends' jobs."""
    same = (STORED.repository_id == COMMIT.repository_id) & (STORED.head_sha == COMMIT.sha)
    query = (
        sa.select(COMMIT.sha, COMMIT.gone, STORED.mark)
        .select_from(branch_commit.outerjoin(ci_commit, same))
        .where(COMMIT.repository_id == repository_id, COMMIT.branch == branch)
        .order_by(COMMIT.at.desc(), COMMIT.sha.desc())
        .limit(MARKED_COMMITS)
    )
    commits = [tuple(row) for row in await tx.run(query)]
    shas = [sha for sha, _, _ in commits]
    changed = sa.select(sa.func.count(), sa.func.max(JOB.updated_at)).where(JOB.head_sha.in_(shas))
    backends = (await tx.run(changed)).all()
    return (tuple(commits), tuple(map(tuple, backends)))


def _branches(repository_id: int) -> sa.Select[tuple[str]]:
    query = sa.select(COMMIT.branch).where(COMMIT.repository_id == repository_id).group_by(COMMIT.branch)
    return query.order_by(sa.func.max(COMMIT.at).desc(), COMMIT.branch)
