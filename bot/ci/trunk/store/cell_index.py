"""The index of cells: what every workflow job says of a commit, written in the transaction that records the job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from bot.ci.trunk import runner_labels
from bot.ci.trunk.cells import CONCLUSIONS, STATES
from bot.ci.trunk.store import branches, changed_days, column_ids, pushed_commits, stored_cells
from bot.ci.trunk.tables import ci_cell
from bot.core import escaping
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.ci.trunk.store.column_ids import Named
    from bot.db.transaction import Changed, Transaction
    from bot.ingest.rows import CheckRunRow, PushRow, WorkflowJobRow, WorkflowRunRow
    from bot.oot.results.tables import JobRow

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


async def write_cells(tx: Transaction, changed: Changed) -> None:
    """Before a commit: write the cells of changed jobs and the commits of new pushes."""
    jobs = cast("Sequence[WorkflowJobRow]", changed.get("workflow_job", ()))
    runs = cast("Sequence[WorkflowRunRow]", changed.get("workflow_run", ()))
    on_commits = [job for job in jobs if job["head_sha"]]
    if on_commits:
        await _write_cells(tx, on_commits)
    await stored_cells.forget(
        tx, [(one["repository_id"], sha) for one in (*on_commits, *runs) if (sha := one["head_sha"])]
    )
    if pushes := cast("Sequence[PushRow]", changed.get("push", ())):
        await pushed_commits.write_commits(tx, pushes)
        await branches.note_pushes(tx, pushes)
    checks = cast("Sequence[CheckRunRow]", changed.get("check_run", ()))
    reported = cast("Sequence[JobRow]", changed.get("oot_workflow_job", ()))
    shas = {one["head_sha"] for one in (*on_commits, *runs)} | {push["after"] for push in pushes}
    shas |= {row["head_sha"] for row in checks if row["app_slug"] != GITHUB_ACTIONS}
    shas |= {row.get("head_sha") for row in reported if row.get("pr_number") is None}
    runners = {(job["repository_id"], job["created_at"] // DAY) for job in on_commits if job["created_at"]}
    await changed_days.request_of_commits(tx, {sha for sha in shas if sha}, runners)


async def _write_cells(tx: Transaction, jobs: Sequence[WorkflowJobRow]) -> None:
    names = [
        column_ids.parse_name(job["workflow_name"] or "", job["name"] or escaping.NAMELESS) for job in jobs
    ]
    both = list(zip(jobs, names, strict=True))
    days = [(job["repository_id"], name, (job["created_at"] or tx.now) // DAY) for job, name in both]
    ids = await column_ids.assign_ids(tx, days)
    rows = {(job["repository_id"], job["id"]): _cell(job, name, ids) for job, name in both}
    await tx.upsert(
        ci_cell, [rows[place] for place in sorted(rows)], replaced=_FROM_RECORD, greatest=("held",)
    )


def _cell(job: WorkflowJobRow, name: Named, ids: Mapping[column_ids.Key, int]) -> Mapping[str, Any]:
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
        "runner_label": runner_labels.stored_labels(job["labels"] or []),
    }
