"""What became of jobs on trusted commits: the baseline that a failure is compared with.

Upstream's own jobs count where their run is trusted; a backend's where it reported the run for a trusted commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.ci.collect import job_names
from bot.ci.collect.store import runs as collect_rows
from bot.ci.collect.store import trusted_runs
from bot.ci.collect.store.merge_base import merged_into
from bot.ci.logs.store.failed_jobs import run_keys
from bot.ci.logs.tables import ci_log, ci_verdict
from bot.ci.trunk.cells import CONCLUSIONS
from bot.ci.trunk.tables import branch_commit, ci_cell, ci_column
from bot.db.rows import select
from bot.ingest import watched
from bot.ingest.rows import WorkflowRunRow
from bot.ingest.tables import records
from bot.oot.results.tables import oot_workflow_job

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bot.ci.logs.store.failed_jobs import FailedJob
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction

HEADS = 3  # newest commits of the branch, at the time of the failure
JOBS_MOST = 3_000  # of one comparison
RUNS_MOST = 500  # reported ones
JOB, RUN, COMMIT = records["workflow_job"].c, records["workflow_run"].c, branch_commit.c
CELL, COLUMN, REPORTED = ci_cell.c, ci_column.c, oot_workflow_job.c
LOG, VERDICT = ci_log.c, ci_verdict.c


class Head(NamedTuple):
    """A commit of upstream that jobs failed on."""

    repo: str
    sha: str


class Past(NamedTuple):
    """A job on a trusted commit."""

    repo: str
    job: str  # without shard and runner
    sha: str  # upstream's commit
    key: tuple[int, int]  # of the job: repository and id
    conclusion: str | None  # None: it has not ended


class Base(NamedTuple):
    """What a head is compared with."""

    ids: frozenset[int]  # of upstream's repository
    branch: str
    merged_into: frozenset[str]  # its merge base, and the base's head when it was pushed
    shas: tuple[str, ...]  # these, then the newest commits of the branch


async def head_of(tx: Transaction, failed: FailedJob) -> Head | None:
    """Return upstream's commit that a job is about: its own, or the one that its backend reported its run for.

    None where that is of another repository that is not public: its commits are nothing to show with the job.
    """
    query = sa.select(REPORTED.upstream_repo, REPORTED.head_sha).where(
        REPORTED.run_id == failed["run_id"],
        REPORTED.run_attempt == failed["run_attempt"],
        sa.func.lower(REPORTED.downstream_repo) == failed["repo"].lower(),
    )
    if row := await tx.row(query.limit(1)):
        shown = row["head_sha"] and await _is_public(tx, row["upstream_repo"])
        return Head(row["upstream_repo"], row["head_sha"]) if shown else None
    of_log = sa.select(LOG.head_sha).where(
        LOG.repository_id == failed["repository_id"], LOG.job_id == failed["job_id"]
    )
    sha = (await tx.run(of_log)).scalar()
    return Head(failed["repo"], sha) if sha else None


async def _is_public(tx: Transaction, repo: str) -> bool:
    ids = await watched.ids(tx, repo)
    return bool(ids) and all([(await collect_rows.repository_facts(tx, one)).private is False for one in ids])


async def find_base(tx: Transaction, settings: Settings, head: Head, ids: set[int], *, at: int) -> Base:
    """Return the trusted commits to compare a head with, as they were at a time; `ids` are of its repository."""
    branch, bases = await merged_into(tx, settings, head.repo, ids, head.sha)
    newest = await commits_of_branch(tx, ids, branch, until=at, limit=HEADS)
    return Base(frozenset(ids), branch, bases, tuple(dict.fromkeys([*sorted(bases), *newest])))


async def commits_of_branch(
    tx: Transaction, ids: Collection[int], branch: str, *, until: int, limit: int
) -> list[str]:
    """Return commits of a branch, the newest first; `until` is a time."""
    query = sa.select(COMMIT.sha).where(
        COMMIT.repository_id.in_(sorted(ids)),
        COMMIT.branch == branch,
        COMMIT.at <= until,
        sa.not_(COMMIT.gone),
    )
    return list((await tx.run(query.order_by(COMMIT.at.desc(), COMMIT.sha).limit(limit))).scalars())


async def jobs_of_upstream(
    tx: Transaction, settings: Settings, base: Base, names: Iterable[tuple[str, str]]
) -> list[Past]:
    """Return upstream's own jobs of some names, each workflow and job without shard, on trusted commits."""
    pairs = sorted(set(names))
    if not base.shas or not pairs:
        return []
    same = sa.and_(COLUMN.id == CELL.column_id, COLUMN.repository_id == CELL.repository_id)
    of_job = sa.and_(JOB.repository_id == CELL.repository_id, JOB.id == CELL.job_id)
    query = (
        sa.select(JOB.repo, COLUMN.workflow, COLUMN.job, CELL.head_sha, CELL.repository_id, CELL.job_id,
                  CELL.conclusion, CELL.run_id, CELL.attempt)
        .select_from(ci_cell.join(ci_column, same).join(records["workflow_job"], of_job))
        .where(
            CELL.repository_id.in_(sorted(base.ids)),
            CELL.head_sha.in_(base.shas),
            tx.among((COLUMN.workflow, COLUMN.job), pairs),
        )
        .limit(JOBS_MOST)
    )  # fmt: skip
    found = await tx.rows(query)
    trusted = await _trusted_runs(tx, settings, {(row["run_id"], row["attempt"]) for row in found})
    return [
        Past(row["repo"], _full(row["workflow"], row["job"]), row["head_sha"], (row["repository_id"], row["job_id"]),
             CONCLUSIONS[row["conclusion"]] or None)
        for row in found
        if (row["run_id"], row["attempt"]) in trusted
    ]  # fmt: skip


async def jobs_of_backends(
    tx: Transaction, upstream: str, backends: Collection[str], shas: Sequence[str]
) -> list[Past]:
    """Return the jobs of runs that backends (in lower case) reported for trusted commits of upstream."""
    if not shas or not backends:
        return []
    reported = sa.select(
        sa.func.lower(REPORTED.downstream_repo).label("repo"),
        REPORTED.run_id,
        REPORTED.run_attempt,
        REPORTED.head_sha,
    ).where(
        REPORTED.head_sha.in_(shas),
        REPORTED.pr_number.is_(None),
        sa.func.lower(REPORTED.upstream_repo) == upstream.lower(),
        sa.func.lower(REPORTED.downstream_repo).in_(sorted(backends)),
    )
    runs = await tx.rows(reported.distinct().limit(RUNS_MOST))
    of_run = {
        (str(row["repo"]), *key): str(row["head_sha"])
        for row in runs
        for key in run_keys([(row["run_id"], row["run_attempt"])])
    }
    if not of_run:
        return []
    query = sa.select(
        JOB.repo,
        JOB.workflow_name,
        JOB.name,
        JOB.run_id,
        JOB.run_attempt,
        JOB.repository_id,
        JOB.id,
        JOB.conclusion,
    ).where(tx.among((JOB.run_id, JOB.run_attempt), sorted({key[1:] for key in of_run})))
    return [
        Past(row["repo"], job_names.parse_name(row["workflow_name"], row["name"] or "").shard_free, sha,
             (row["repository_id"], row["id"]), row["conclusion"])
        for row in await tx.rows(query.limit(JOBS_MOST))
        if (sha := of_run.get((row["repo"].lower(), row["run_id"], row["run_attempt"])))
    ]  # fmt: skip


async def captures_of_jobs(
    tx: Transaction, jobs: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], list[tuple[str, str]]]:
    """Return what was found in the logs of some jobs, by repository and id: rule and captures, the verdict first."""
    keys = sorted(set(jobs))
    if not keys:
        return {}
    query = sa.select(VERDICT.repository_id, VERDICT.job_id, VERDICT.rule, VERDICT.captures).where(
        tx.among((VERDICT.repository_id, VERDICT.job_id), keys), VERDICT.current, VERDICT.rule.is_not(None)
    )
    found: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for row in await tx.rows(query.order_by(VERDICT.repository_id, VERDICT.job_id, VERDICT.rank)):
        one = (str(row["rule"]), "\0".join(row["captures"]))
        found.setdefault((row["repository_id"], row["job_id"]), []).append(one)
    return found


async def _trusted_runs(
    tx: Transaction, settings: Settings, keys: set[tuple[int, int]]
) -> set[tuple[int, int]]:
    if not keys:
        return set()
    query = select(WorkflowRunRow, records["workflow_run"]).where(
        tx.among((RUN.id, RUN.run_attempt), sorted(keys))
    )
    return {
        (run["id"], run["run_attempt"])
        for run in await tx.fetch(query)
        if await trusted_runs.is_trusted_run(tx, settings, run)
    }


def _full(workflow: str, job: str) -> str:
    return f"{workflow} / {job}" if workflow else job
