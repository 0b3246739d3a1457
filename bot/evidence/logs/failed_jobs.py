"""Failed jobs of a commit or of reported runs, with the verdicts on their logs.

GitHub has a record of a log's job, a backend uploaded the log, or the job ran on another CI.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import sqlalchemy as sa

from bot.db.rows import Bool, Int, Text, select
from bot.db.statements import Statement
from bot.db.transaction import among_given
from bot.evidence.collect.tables import ci_upload
from bot.evidence.logs.tables import (
    FIRST,
    PUBLIC,
    LogKey,
    VerdictAt,
    VerdictFamily,
    VerdictRule,
    VerdictSignature,
    VerdictStep,
    VerdictTrust,
    ci_log,
    ci_verdict,
)
from bot.ingest.tables import records, repository_name
from bot.jobs import job_cells
from bot.jobs.cells import CONCLUSIONS
from bot.jobs.tables import ci_cell, ci_column
from bot.oot.results.jobs import dispatched_later, passed_later, reported_later
from bot.oot.results.tables import oot_dispatch, oot_workflow_job
from bot.oot.results.task_keys import request_publish

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from bot.db.rows import TypedSelect
    from bot.db.transaction import Transaction

    Column = sa.ColumnElement[Any]

JOB, LOG, UPLOAD, CELL, COLUMN = (
    records["workflow_job"].c, ci_log.c, ci_upload.c, ci_cell.c, ci_column.c,
)  # fmt: skip
_OWNER, _later = records["repository"].c, ci_cell.alias("later_cell")
_FULL_NAME = (
    sa.select(_OWNER.full_name)
    .where(_OWNER.repository_id == CELL.repository_id)
    .limit(1)
    .correlate(ci_cell)
    .scalar_subquery()
)
REPO = sa.func.coalesce(JOB.repo, UPLOAD.backend, _FULL_NAME).label("repo")
NAME = sa.func.coalesce(JOB.name, UPLOAD.job, COLUMN.job).label("name")
WORKFLOW = sa.func.coalesce(JOB.workflow_name, UPLOAD.workflow, COLUMN.workflow).label("workflow_name")
RUN = sa.func.coalesce(UPLOAD.run_id, sa.cast(LOG.run_id, sa.Text))
_PASSED_ELSEWHERE = sa.exists().where(
    _later.c.repository_id == CELL.repository_id,
    _later.c.head_sha == CELL.head_sha,
    _later.c.column_id == CELL.column_id,
    _later.c.shard == CELL.shard,
    _later.c.attempt > CELL.attempt,
    _later.c.conclusion == CONCLUSIONS.index("success"),
)
# a later attempt of the job has passed
OVERTAKEN = (
    passed_later(LOG.repository_id, LOG.job_id)
    | reported_later(UPLOAD.backend_key, UPLOAD.run_id, UPLOAD.run_attempt, UPLOAD.job)
    | _PASSED_ELSEWHERE
)

GITHUB_RUN_ID = re.compile(r"[1-9][0-9]{0,17}")  # GitHub's; other CIs have ids of all kinds
RUNS_MOST = 1_000  # that backends reported for one commit
VERDICT = ci_verdict.c
REPORTED, NAMED = oot_workflow_job.c, repository_name.c
# put together once: it is run for every batch of reports
_REPOS: sa.BindParameter[Any] = sa.bindparam("repos", expanding=True)
NAMES = Statement(sa.select(NAMED.repository_id, NAMED.name).where(NAMED.name.in_(_REPOS)))
AttemptKey = tuple[str, int]  # id and attempt


class JobName(TypedDict):
    """What GitHub, a backend or another CI calls a job."""

    name: Text | None
    workflow_name: Text | None


class ReportedRun(TypedDict):
    """A run as reports name it: other CIs have ids of all kinds."""

    run_id: Text
    run_attempt: Int


class FailedJob(
    LogKey,
    ReportedRun,
    JobName,
    VerdictRule,
    VerdictStep,
    VerdictSignature,
    VerdictFamily,
    VerdictTrust,
    VerdictAt,
):
    """A job whose log has a verdict."""

    repo: Text
    backend_key: Text | None  # of an upload: the backend that sent it
    public: Bool  # its repository is, and was when the log was read


def with_jobs(rows: sa.FromClause, repository_id: Column, job_id: Column) -> sa.Join:
    """Join rows about jobs with what is known of the jobs."""
    of_github = sa.and_(JOB.repository_id == repository_id, JOB.id == job_id)
    elsewhere = sa.and_(
        job_id <= job_cells.LARGEST_NUMBER, CELL.repository_id == repository_id, CELL.job_id == job_id
    )
    return (
        rows.outerjoin(records["workflow_job"], of_github)
        .outerjoin(ci_upload, UPLOAD.id == -job_id)
        .outerjoin(ci_cell, elsewhere)
        .outerjoin(ci_column, COLUMN.id == CELL.column_id)
    )


LOGS = with_jobs(ci_log, LOG.repository_id, LOG.job_id)


class Reported(NamedTuple):
    """The runs that backends reported for a commit of upstream."""

    repos: frozenset[str]  # in lower case
    runs: tuple[AttemptKey, ...]


async def failures_on_commit(
    tx: Transaction, repository_ids: Iterable[int], sha: str, *, limit: int
) -> list[FailedJob]:
    """Return the verdicts on a repository's own jobs on a commit, unless they have passed since."""
    concerned = sa.and_(LOG.repository_id.in_(sorted(repository_ids)), LOG.head_sha == sha)
    return await tx.fetch(_failed_jobs().where(concerned, ~OVERTAKEN).limit(limit))


async def failures_on_run(tx: Transaction, repository_id: int, run_id: int, *, limit: int) -> list[FailedJob]:
    """Return the verdicts on the jobs of all attempts of a run."""
    concerned = sa.and_(LOG.repository_id == repository_id, LOG.run_id == run_id)
    return await tx.fetch(_failed_jobs().where(concerned).limit(limit))


async def commit_of_run(tx: Transaction, repository_id: int, run_id: int) -> str | None:
    """Return the commit of a run that has logs."""
    query = sa.select(LOG.head_sha).where(LOG.repository_id == repository_id, LOG.run_id == run_id)
    sha: str | None = (await tx.run(query.limit(1))).scalar()
    return sha


async def failures_of_backends(tx: Transaction, repo: str, sha: str, *, limit: int) -> list[FailedJob]:
    """Return the verdicts on jobs of the runs that backends reported for a commit of upstream."""
    concerned = await logs_of_runs(tx, await reported_for(tx, repo, sha, counting=True))
    if concerned is None:
        return []
    return await tx.fetch(_failed_jobs().where(concerned, ~OVERTAKEN).limit(limit))


async def failures_of_runs(tx: Transaction, reported: Reported, *, limit: int) -> list[FailedJob]:
    """Return the verdicts on jobs of reported runs."""
    concerned = await logs_of_runs(tx, reported)
    if concerned is None:
        return []
    return await tx.fetch(_failed_jobs().where(concerned).limit(limit))


async def failures_by_backend(
    tx: Transaction, runs: Mapping[str, Collection[AttemptKey]], *, limit: int
) -> dict[str, list[FailedJob]]:
    """Return the verdicts on jobs of reported runs, at most `limit` for each backend (in lower case).

    One query for all: a pull request has hundreds of backends.
    """
    every = frozenset(run for of_one in runs.values() for run in of_one)
    concerned = await logs_of_runs(tx, Reported(frozenset(runs), tuple(sorted(every))))
    if concerned is None:
        return {}
    place = sa.func.row_number().over(partition_by=LOG.repository_id, order_by=(NAME, LOG.job_id))
    each = _failed_jobs().where(concerned).order_by(None).add_columns(place.label("place")).subquery()
    failed = await tx.rows_as(FailedJob, sa.select(each).where(each.c.place <= limit).order_by(each.c.place))
    names = await _names_of_repositories(tx, runs)
    by_backend: dict[str, list[FailedJob]] = {}
    for job in failed:
        for name in [job["backend_key"]] if job["backend_key"] else names.get(job["repository_id"], ()):
            if (job["run_id"], job["run_attempt"]) in runs.get(name, ()):
                by_backend.setdefault(name, []).append(job)
    return by_backend


async def failure_of_job(tx: Transaction, repository_id: int, job_id: int) -> FailedJob | None:
    """Return the verdict on one job."""
    return await tx.fetch_first(
        _failed_jobs().where(LOG.repository_id == repository_id, LOG.job_id == job_id)
    )


async def logs_of_runs(tx: Transaction, reported: Reported) -> sa.ColumnElement[bool] | None:
    """Return the condition for logs of reported runs, or None if there can be none."""
    if not reported.runs:
        return None
    ids = sorted(await _names_of_repositories(tx, reported.repos))
    keys = run_keys(reported.runs)
    conditions = []
    if ids and keys:
        same = tx.among((LOG.run_id, LOG.run_attempt), keys)
        conditions.append(
            sa.and_(LOG.repository_id.in_(ids), LOG.run_id.in_(sorted({run for run, _ in keys})), same)
        )
    of_run = {"backends": sorted(reported.repos), "runs": tx.keys(list(reported.runs))}
    uploaded = await tx.run(_uploads(sqlite=tx.sqlite), of_run)
    if uploads := [(row.repository_id, -row.id) for row in uploaded]:
        conditions.append(tx.among((LOG.repository_id, LOG.job_id), uploads))
    return sa.or_(*conditions) if conditions else None


async def _names_of_repositories(tx: Transaction, repos: Iterable[str]) -> dict[int, list[str]]:
    """Return which of these names each repository has or had."""
    names: dict[int, list[str]] = {}
    for row in await tx.run(NAMES, {"repos": sorted(repos)}):
        names.setdefault(row.repository_id, []).append(row.name)
    return names


async def runs_with_logs(tx: Transaction, reported: Reported) -> set[tuple[str, int]]:
    """Return the reported runs, as id and attempt, that have logs; few have any while their jobs report."""
    backends, keys = sorted(reported.repos), run_keys(reported.runs)
    uploaded = {"backends": backends, "runs": tx.keys(list(reported.runs))}
    runs = {
        (str(row.run_id), int(row.run_attempt)) for row in await tx.run(_uploaded(sqlite=tx.sqlite), uploaded)
    }
    if keys:
        logged = {"repos": backends, "ids": sorted({run for run, _ in keys}), "runs": tx.keys(keys)}
        rows = await tx.run(_collected(sqlite=tx.sqlite), logged)
        runs |= {(str(row.run_id), int(row.run_attempt)) for row in rows}
    return runs


@functools.cache
def _collected(*, sqlite: bool) -> Statement:
    """Return the query for reported runs with logs that were collected from GitHub."""
    return Statement(
        sa.select(LOG.run_id, LOG.run_attempt)
        .where(
            LOG.repository_id.in_(sa.select(NAMED.repository_id).where(NAMED.name.in_(_REPOS))),
            LOG.run_id.in_(sa.bindparam("ids", expanding=True)),
            among_given((LOG.run_id, LOG.run_attempt), "runs", sqlite=sqlite),
        )
        .distinct()
    )


@functools.cache
def _uploaded(*, sqlite: bool) -> Statement:
    """Return the query for reported runs with logs that their backends uploaded."""
    return Statement(sa.select(UPLOAD.run_id, UPLOAD.run_attempt).where(*_of_runs(sqlite=sqlite)).distinct())


@functools.cache
def _uploads(*, sqlite: bool) -> Statement:
    """Return the query for logs that backends uploaded for reported runs."""
    return Statement(
        sa.select(UPLOAD.repository_id, UPLOAD.id).where(*_of_runs(sqlite=sqlite)).limit(RUNS_MOST)
    )


def _of_runs(*, sqlite: bool) -> list[sa.ColumnElement[bool]]:
    backends: sa.BindParameter[Any] = sa.bindparam("backends", expanding=True)
    runs = among_given((UPLOAD.run_id, UPLOAD.run_attempt), "runs", sqlite=sqlite)
    return [UPLOAD.backend_key.in_(backends), UPLOAD.kind == "log", runs]


async def reported_jobs(
    tx: Transaction, backend: str, run_id: str, attempt: int, *, limit: int
) -> list[tuple[str, str, str | None]]:
    """Return key, name and conclusion of the jobs of a run that a backend (in lower case) reported."""
    query = sa.select(REPORTED.job_key, REPORTED.job_name, REPORTED.conclusion).where(
        REPORTED.run_id == run_id,
        REPORTED.run_attempt == attempt,
        sa.func.lower(REPORTED.downstream_repo) == backend,
    )
    return [tuple(row) for row in (await tx.run(query.limit(limit))).all()]


async def reported_for(tx: Transaction, repo: str, sha: str, *, counting: bool = False) -> Reported:
    """Return the runs that backends reported for a commit of upstream, with `counting` for their last dispatch only."""
    query = sa.select(REPORTED.downstream_repo, REPORTED.run_id, REPORTED.run_attempt).where(
        sa.func.lower(REPORTED.upstream_repo) == repo.lower(), REPORTED.head_sha == sha
    )
    if counting:
        query = query.where(~dispatched_later(REPORTED.dispatch_id))
    runs = await tx.rows(query.distinct().limit(RUNS_MOST))
    keys = tuple((str(row["run_id"]), int(row["run_attempt"])) for row in runs)
    return Reported(frozenset(str(row["downstream_repo"]).lower() for row in runs), keys)


def run_keys(reported: Iterable[tuple[str, int]]) -> list[tuple[int, int]]:
    """Return those reported runs that can be runs on GitHub."""
    return [(int(run_id), attempt) for run_id, attempt in reported if GITHUB_RUN_ID.fullmatch(run_id)]


async def request_publish_of_jobs(tx: Transaction, repository_id: int, job_ids: Collection[int]) -> None:
    """Request updates of the pull requests for which backends reported the runs of some jobs, in that attempt."""
    query = sa.select(JOB.repo, JOB.run_id, JOB.run_attempt).distinct()
    mine = query.where(JOB.repository_id == repository_id, JOB.id.in_(sorted(set(job_ids))))
    runs = {(row.repo.casefold(), str(row.run_id), row.run_attempt) for row in await tx.run(mine)}
    reported = await tx.run(
        sa.select(
            REPORTED.downstream_repo,
            REPORTED.run_id,
            REPORTED.run_attempt,
            REPORTED.upstream_repo,
            REPORTED.pr_number,
        )
        .where(REPORTED.run_id.in_(sorted({run for _, run, _ in runs})), REPORTED.pr_number.is_not(None))
        .distinct()
    )
    pulls = {
        (row.upstream_repo, row.pr_number)
        for row in reported
        if (row.downstream_repo.casefold(), row.run_id, row.run_attempt) in runs
    }
    for repo, number in sorted(pulls | await pulls_of_uploads(tx, [-job_id for job_id in job_ids])):
        request_publish(tx, repo, number)


async def pull_of_run(tx: Transaction, backend: str, run_id: int) -> tuple[str, int] | None:
    """Return the pull request that a backend reported a run for."""
    query = sa.select(REPORTED.upstream_repo, REPORTED.pr_number).where(
        sa.func.lower(REPORTED.downstream_repo) == backend.lower(),
        REPORTED.run_id == str(run_id),
        REPORTED.pr_number.is_not(None),
    )
    pull = (await tx.run(query.limit(1))).first()
    return (pull.upstream_repo, pull.pr_number) if pull else None


async def pulls_of_uploads(tx: Transaction, uploads: Iterable[int]) -> set[tuple[str, int]]:
    """Return the pull requests that uploads are for; numbers below 0 are no uploads."""
    wanted = sorted(upload for upload in uploads if upload > 0)
    dispatch = oot_dispatch.c
    query = (
        sa.select(dispatch.upstream_repo, dispatch.pr_number)
        .join(ci_upload, UPLOAD.dispatch_id == dispatch.id)
        .where(UPLOAD.id.in_(wanted), dispatch.pr_number.is_not(None))
        .distinct()
    )
    return {(row.upstream_repo, row.pr_number) for row in await tx.run(query)} if wanted else set()


def _failed_jobs() -> TypedSelect[FailedJob]:
    repository = records["repository"].c
    public = sa.exists().where(
        repository.repository_id == LOG.repository_id, repository.private.is_(False), VERDICT.family == PUBLIC
    )
    of_log = sa.and_(VERDICT.repository_id == LOG.repository_id, VERDICT.job_id == LOG.job_id)
    computed = {"repo": REPO, "name": NAME, "workflow_name": WORKFLOW, "backend_key": UPLOAD.backend_key}
    query = select(FailedJob, ci_verdict, ci_log, run_id=RUN, public=public, **computed)
    joined = query.select_from(LOGS.join(ci_verdict, sa.and_(of_log, FIRST)))
    return joined.where(REPO.is_not(None)).order_by(NAME, LOG.job_id)
