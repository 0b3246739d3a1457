"""Cells as they are written: of workflow jobs with their records, of jobs that ran elsewhere, and why a job failed."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import sqlalchemy as sa

from bot.core import escaping
from bot.db.rows import select
from bot.db.statements import Statement
from bot.db.transaction import among_given
from bot.jobs import branch_commits, branches, cells, commit_cells, grid_columns, job_names
from bot.jobs.cells import CONCLUSIONS, STATES
from bot.jobs.tables import CellRow, ColumnName, ColumnSource, ci_cell, ci_column
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from bot.db.transaction import Changed, Transaction
    from bot.ingest.record_rows import CheckRunRow, PushRow, WorkflowJobRow, WorkflowRunRow
    from bot.jobs.grid_columns import NumberedColumn
    from bot.oot.results.tables import JobRow

LARGEST_NUMBER = -(2**52)
KEPT_BITS = 52  # of the digest: readers of JSON take whole numbers of up to 53 bits
LINE_MOST = 300  # characters: grids read many thousands of cells
CELL, COLUMN = ci_cell.c, ci_column.c
GITHUB_ACTIONS = "github-actions"  # whose check runs are its jobs
STATE_OF = {"requested": 0, "pending": 0} | {word: code for code, word in enumerate(STATES)}
CONCLUSION_OF = {word: code for code, word in enumerate(CONCLUSIONS) if word != "allowed"}
OTHER = CONCLUSION_OF["other"]
HELD = "waiting"  # status of a job that waits for an approval
# what a job's record decides; what its log and tests add stays when the record changes
_FROM_RECORD = (
    "numbered_column_id", "run_id", "attempt", "shard", "shards", "state", "conclusion", "queued_at", "started_at",
    "completed_at", "runner_label",
)  # fmt: skip
ALLOWED = "allowed"  # conclusion of a failure that the job may have

_CONCLUSIONS = CONCLUSION_OF | {ALLOWED: CONCLUSIONS.index(ALLOWED)}
_FAILED = frozenset({"failure", "timed_out", ALLOWED})
_FROM_JOB = (
    "run_id", "attempt", "shard", "shards", "state", "conclusion", "queued_at", "started_at", "completed_at",
    "runner_label", "line", "failure_kind", "url",
)  # fmt: skip


class JobTests(NamedTuple):
    """The tests that failed in a job of GitHub's.

    `tests` are those not known to be flaky, one number for a test wherever it runs.
    """

    repository_id: int
    job_id: int
    total: int
    tests: frozenset[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherJob:
    """A job on a commit as the grid shows it."""

    repository_id: int
    head_sha: str
    source: str  # of its column
    workflow: str
    name: str
    shown_as: str | None  # the commit status under which GitHub shows it, or its beginning
    id: str  # unique among those of its source
    run: str  # what runs together
    status: str  # words of GitHub, as the next one, or `allowed`
    conclusion: str
    attempt: int = 1
    shard: int = 0
    shards: int = 0
    queued_at: int | None = None  # epoch milliseconds, as the next ones
    started_at: int | None = None
    completed_at: int | None = None
    held: bool = False  # whether it waited for more than a runner
    runner: str | None = None
    line: str | None = None  # why it failed
    kind: str | None = None  # of the failure
    url: str | None = None


class OtherJobRow(CellRow, ColumnName, ColumnSource):
    """A stored job with the names of its column."""


def make_number(source: str, text: str) -> int:
    """Return the number for a job's id on another CI."""
    digest = hashlib.sha256(f"{source}\0{text}".encode("utf-8", "replace")).digest()
    return LARGEST_NUMBER - (int.from_bytes(digest[:8]) >> 64 - KEPT_BITS)


def is_elsewhere(number: int) -> bool:
    """Whether a number stands for a job that ran elsewhere."""
    return number <= LARGEST_NUMBER


async def write_line(
    tx: Transaction, repository_id: int, job_id: int, *, kind: str, signature: str | None, line: str | None
) -> None:
    """Replace the reason for a failure in a job's cell; None and kind `none` where no rule names one.

    For a job that ran elsewhere, what its CI said stays where no rule says more.
    """
    if signature is None and is_elsewhere(job_id):
        return
    values = {"failure_kind": kind, "signature": signature, "line": line and line[:LINE_MOST]}
    await _write_cause(tx, repository_id, job_id, values)


async def write_tests(tx: Transaction, jobs: Iterable[JobTests]) -> None:
    """Write the tests that failed in some jobs into their cells, in place of what was there."""
    for job in jobs:
        values = {"tests_failed": job.total, "failed_tests": _names(job.tests)}
        differs = sa.or_(*(CELL[name].is_distinct_from(value) for name, value in values.items()))
        await _write_cause(tx, job.repository_id, job.job_id, values, where=differs)


async def write_cells(tx: Transaction, changed: Changed) -> None:
    """Before a commit, write the cells of changed jobs and the commits of new pushes."""
    jobs = cast("Sequence[WorkflowJobRow]", changed.get("workflow_job", ()))
    runs = cast("Sequence[WorkflowRunRow]", changed.get("workflow_run", ()))
    on_commits = [job for job in jobs if job["head_sha"]]
    if on_commits:
        await _write_cells(tx, on_commits)
    await commit_cells.forget_cells(
        tx, [(row["repository_id"], sha) for row in (*on_commits, *runs) if (sha := row["head_sha"])]
    )
    if pushes := cast("Sequence[PushRow]", changed.get("push", ())):
        await branch_commits.write_commits(tx, pushes)
        await branches.note_pushes(tx, pushes)
    checks = cast("Sequence[CheckRunRow]", changed.get("check_run", ()))
    reported = cast("Sequence[JobRow]", changed.get("oot_workflow_job", ()))
    shas = {row["head_sha"] for row in (*on_commits, *runs)} | {push["after"] for push in pushes}
    shas |= {row["head_sha"] for row in checks if row["app_slug"] != GITHUB_ACTIONS}
    shas |= {row.get("head_sha") for row in reported if row.get("pr_number") is None}
    runners = {(job["repository_id"], job["created_at"] // DAY) for job in on_commits if job["created_at"]}
    await branches.request_sums_of_commits(tx, {sha for sha in shas if sha}, runners)


async def write_other_jobs(tx: Transaction, jobs: Sequence[OtherJob]) -> None:
    """Write the cells of recorded jobs, and request what is computed from them."""
    if not jobs:
        return
    jobs = await _with_known_lines(tx, jobs)
    names = [grid_columns.name_elsewhere(job.source, job.workflow, job.name, job.shown_as) for job in jobs]
    both = list(zip(jobs, names, strict=True))
    days = [(job.repository_id, name, (job.queued_at or tx.now) // DAY) for job, name in both]
    ids = await grid_columns.assign_ids(tx, days)
    rows = {(job.repository_id, job.source, job.id): _cell_of_other_job(job, name, ids) for job, name in both}
    ordered = [rows[place] for place in sorted(rows)]
    await tx.upsert(ci_cell, ordered, replaced=_FROM_JOB, greatest=("held",))
    await commit_cells.forget_cells(tx, [(job.repository_id, job.head_sha) for job in jobs])
    runners = {(job.repository_id, job.queued_at // DAY) for job in jobs if job.queued_at}
    await branches.request_sums_of_commits(tx, {job.head_sha for job in jobs}, runners)


async def find_other_job(tx: Transaction, owners: Collection[int], number: int) -> OtherJobRow | None:
    """Return a job of one of some repositories by its number."""
    query = select(OtherJobRow, ci_cell, ci_column).where(
        CELL.repository_id.in_(sorted(owners)),
        CELL.job_id == number,
        COLUMN.id == CELL.column_id,
    )
    return await tx.fetch_first(query.order_by(CELL.head_sha).limit(1))


async def _write_cause(
    tx: Transaction,
    repository_id: int,
    job_id: int,
    values: Mapping[str, Any],
    *,
    where: sa.ColumnElement[bool] | None = None,
) -> None:
    of_job = sa.and_(CELL.repository_id == repository_id, CELL.job_id == job_id)
    query = sa.select(CELL.head_sha).where(of_job)
    shas = (await tx.run(query if where is None else query.where(where))).scalars()
    if shas:
        await tx.run(sa.update(ci_cell).where(of_job).values(**values))
        await commit_cells.forget_cells(tx, [(repository_id, sha) for sha in shas])
        await branches.request_sums_of_commits(tx, shas)


def _names(tests: Iterable[int]) -> str | None:
    return cells.joined_tests(f"{test & 0xFFFFFFFFFF:010x}" for test in tests)


async def _write_cells(tx: Transaction, jobs: Sequence[WorkflowJobRow]) -> None:
    names = [
        grid_columns.parse_name(job["workflow_name"] or "", job["name"] or escaping.NAMELESS) for job in jobs
    ]
    both = list(zip(jobs, names, strict=True))
    days = [(job["repository_id"], name, (job["created_at"] or tx.now) // DAY) for job, name in both]
    ids = await grid_columns.assign_ids(tx, days)
    rows = {(job["repository_id"], job["id"]): _cell_of_record(job, name, ids) for job, name in both}
    await tx.upsert(
        ci_cell, [rows[place] for place in sorted(rows)], replaced=_FROM_RECORD, greatest=("held",)
    )


def _cell_of_record(
    job: WorkflowJobRow, name: NumberedColumn, ids: Mapping[grid_columns.ColumnIdentity, int]
) -> Mapping[str, Any]:
    repository = job["repository_id"]
    conclusion = job["conclusion"] or ""
    return {
        "repository_id": repository,
        "head_sha": job["head_sha"],
        "column_id": ids[name.key(repository)],
        "job_id": job["id"],
        "numbered_column_id": name.numbered and ids[name.key(repository, name.numbered)],
        "run_id": job["run_id"] or 0,
        "attempt": job["run_attempt"] or 1,
        "shard": name.shard,
        "shards": name.shards,
        "state": STATE_OF.get(job["status"] or "", 0),
        "conclusion": CONCLUSION_OF.get(conclusion, OTHER),
        "queued_at": job["created_at"],
        "started_at": job["started_at"],
        "completed_at": job["completed_at"] if conclusion else None,
        "held": job["status"] == HELD,
        "runner_label": job_names.stored_labels(job["labels"] or []),
    }


def _cell_of_other_job(
    job: OtherJob, name: NumberedColumn, ids: Mapping[grid_columns.ColumnIdentity, int]
) -> Mapping[str, Any]:
    return {
        "repository_id": job.repository_id,
        "head_sha": job.head_sha,
        "column_id": ids[name.key(job.repository_id)],
        "job_id": make_number(job.source, job.id),
        "numbered_column_id": None,
        "run_id": make_number(job.source, job.run),
        "attempt": job.attempt,
        "shard": job.shard,
        "shards": job.shards,
        "state": STATE_OF.get(job.status, 0),
        "conclusion": _CONCLUSIONS.get(job.conclusion, OTHER),
        "queued_at": job.queued_at,
        "started_at": job.started_at,
        "completed_at": job.completed_at if job.conclusion else None,
        "runner_label": job_names.stored_labels([job.runner] if job.runner else []),
        "line": job.line and job.line[:LINE_MOST],
        "failure_kind": job.kind,
        "held": job.held,
        "other_id": job.id,
        "url": job.url,
    }


async def _with_known_lines(tx: Transaction, jobs: Sequence[OtherJob]) -> list[OtherJob]:
    """Return jobs with what their logs say, where these were read: logs say more than their CI."""
    failed = sorted({
        (job.repository_id, make_number(job.source, job.id)) for job in jobs if job.conclusion in _FAILED
    })  # fmt: skip
    rows = await tx.run(_known_lines(sqlite=tx.sqlite), {"wanted": tx.keys(failed)}) if failed else ()
    known = {(row.repository_id, row.job_id): row for row in rows}
    completed = []
    for job in jobs:
        row = known.get((job.repository_id, make_number(job.source, job.id))) if known else None
        completed.append(replace(job, line=row.line, kind=row.failure_kind) if row else job)
    return completed


@functools.cache
def _known_lines(*, sqlite: bool) -> Statement:
    """Return the query for the lines of jobs whose logs were read, by job number."""
    of_jobs = among_given((CELL.repository_id, CELL.job_id), "wanted", sqlite=sqlite)
    columns = (
        CELL.repository_id,
        CELL.job_id,
        CELL.line,
        CELL.failure_kind,
    )
    return Statement(sa.select(*columns).where(of_jobs, CELL.signature.is_not(None)))
