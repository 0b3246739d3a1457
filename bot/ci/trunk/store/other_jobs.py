"""Jobs that ran elsewhere than on GitHub Actions: cells of the grid like those of its own jobs.

Who knows of such jobs writes them here, in the transaction that records them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.ci.trunk import runner_labels
from bot.ci.trunk.cells import CONCLUSIONS
from bot.ci.trunk.store import changed_days, column_ids, stored_cells
from bot.ci.trunk.store.cell_index import CONCLUSION_OF, OTHER, STATE_OF
from bot.ci.trunk.store.job_causes import LINE_MOST
from bot.ci.trunk.tables import ci_cell
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.ci.trunk.store.column_ids import Named
    from bot.db.transaction import Transaction

ALLOWED = "allowed"  # conclusion of a failure that the job may have
_CONCLUSIONS = CONCLUSION_OF | {ALLOWED: CONCLUSIONS.index(ALLOWED)}
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


async def write_jobs(tx: Transaction, jobs: Sequence[OtherJob]) -> None:
    """Write the cells of jobs that were recorded, and have what is made of them made again."""
    if not jobs:
        return
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
        "job_id": _number(job.source, job.id),
        "numbered_column_id": None,
        "run_id": _number(job.source, job.run),
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


def _number(source: str, text: str) -> int:
    """Return a number for an id elsewhere: negative, which GitHub's never are."""
    digest = hashlib.sha256(f"{source}\0{text}".encode("utf-8", "replace")).digest()
    return -1 - (int.from_bytes(digest[:8]) >> 2)
