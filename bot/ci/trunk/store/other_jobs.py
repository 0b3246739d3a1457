"""Jobs that ran elsewhere than on GitHub Actions: cells of the grid like those of its own jobs.

Who knows of such jobs writes them here, in the transaction that records them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.ci.trunk import runner_labels
from bot.ci.trunk.cells import CONCLUSIONS
from bot.ci.trunk.job_numbers import make_number
from bot.ci.trunk.store import changed_days, column_ids, stored_cells
from bot.ci.trunk.store.cell_index import CONCLUSION_OF, OTHER, STATE_OF
from bot.ci.trunk.store.job_causes import LINE_MOST
from bot.ci.trunk.tables import CellRow, ColumnName, ColumnSource, ci_cell, ci_column
from bot.db.rows import select
from bot.db.statements import Statement
from bot.db.transaction import among_given
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.ci.trunk.store.column_ids import Named
    from bot.db.transaction import Transaction

ALLOWED = "allowed"  # conclusion of a failure that the job may have
CELL, COLUMN = ci_cell.c, ci_column.c
_CONCLUSIONS = CONCLUSION_OF | {ALLOWED: CONCLUSIONS.index(ALLOWED)}
_FAILED = frozenset({"failure", "timed_out", ALLOWED})
_FROM_JOB = (
    "run_id", "attempt", "shard", "shards", "state", "conclusion", "queued_at", "started_at", "completed_at",
    "runner_label", "line", "failure_kind", "url",
)  # fmt: skip


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


async def write_jobs(tx: Transaction, jobs: Sequence[OtherJob]) -> None:
    """Write the cells of jobs that were recorded, and have what is made of them made again."""
    if not jobs:
        return
    jobs = await _with_known_lines(tx, jobs)
    names = [column_ids.name_elsewhere(job.source, job.workflow, job.name, job.shown_as) for job in jobs]
    both = list(zip(jobs, names, strict=True))
    days = [(job.repository_id, name, (job.queued_at or tx.now) // DAY) for job, name in both]
    ids = await column_ids.assign_ids(tx, days)
    rows = {(job.repository_id, job.source, job.id): _cell(job, name, ids) for job, name in both}
    ordered = [rows[place] for place in sorted(rows)]
    await tx.upsert(ci_cell, ordered, replaced=_FROM_JOB, greatest=("held",))
    await stored_cells.forget(tx, [(job.repository_id, job.head_sha) for job in jobs])
    runners = {(job.repository_id, job.queued_at // DAY) for job in jobs if job.queued_at}
    await changed_days.request_of_commits(tx, {job.head_sha for job in jobs}, runners)


def _cell(job: OtherJob, name: Named, ids: Mapping[column_ids.Key, int]) -> Mapping[str, Any]:
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
        "runner_label": runner_labels.stored_labels([job.runner] if job.runner else []),
        "line": job.line and job.line[:LINE_MOST],
        "failure_kind": job.kind,
        "held": job.held,
        "other_id": job.id,
        "url": job.url,
    }


async def _with_known_lines(tx: Transaction, jobs: Sequence[OtherJob]) -> list[OtherJob]:
    """Return jobs with what their logs say, where these were read: that is more than their CI tells."""
    failed = sorted({
        (job.repository_id, make_number(job.source, job.id)) for job in jobs if job.conclusion in _FAILED
    })  # fmt: skip
    rows = await tx.run(_known_lines(sqlite=tx.sqlite), {"wanted": tx.keys(failed)}) if failed else ()
    known = {(row.repository_id, row.job_id): row for row in rows}
    found = []
    for job in jobs:
        row = known.get((job.repository_id, make_number(job.source, job.id))) if known else None
        found.append(replace(job, line=row.line, kind=row.failure_kind) if row else job)
    return found


@functools.cache
def _known_lines(*, sqlite: bool) -> Statement:
    """Return the query for the lines of jobs whose logs were read, by the jobs' numbers."""
    of_jobs = among_given((CELL.repository_id, CELL.job_id), "wanted", sqlite=sqlite)
    columns = (CELL.repository_id, CELL.job_id, CELL.line, CELL.failure_kind)
    return Statement(sa.select(*columns).where(of_jobs, CELL.signature.is_not(None)))


async def find_job(tx: Transaction, owners: Collection[int], number: int) -> OtherJobRow | None:
    """Return a job of one of some repositories by its number."""
    query = select(OtherJobRow, ci_cell, ci_column).where(
        CELL.repository_id.in_(sorted(owners)), CELL.job_id == number, COLUMN.id == CELL.column_id
    )
    return await tx.fetch_first(query.order_by(CELL.head_sha).limit(1))
