"""Jobs that GitHub announces after their logs were read: whose a log is, and when its job ended, is looked at again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.collect.attribution import Job, attribute_artifact
from bot.ci.collect.store import runs as collected
from bot.ci.utilization import log_attribution, log_choice
from bot.ci.utilization.store import count_days, job_rows
from bot.core.errors import GiveUp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.utilization.log_attribution import LogOwner
    from bot.ci.utilization.tables import JobKey, JobRow
    from bot.context import Context
    from bot.db.transaction import Changed, Transaction
    from bot.ingest.rows import WorkflowJobRow
    from bot.queue.tasks import Task

KIND = "utilization"


async def request_attribution(tx: Transaction, changed: Changed) -> None:
    """Before a commit: have the logs looked at again of runs whose jobs ended just now."""
    ended = {
        (int(row["repository_id"]), int(row["run_id"]))
        for row in changed.get("workflow_job", ())
        if row.get("conclusion") and row.get("run_id")
    }
    for repository_id, run_id in await job_rows.measured_runs(tx, sorted(ended)) if ended else ():
        tx.enqueue(KIND, f"{repository_id}/{run_id}")


async def attribute_again(context: Context, task: Task) -> None:
    """Look again at the logs of a run (key: repository and run, by id), one in a transaction."""
    repository, _, number = task.key.partition("/")
    if not repository.isdigit() or not number.isdigit():
        raise GiveUp(f"{task.key!r} names no run")
    async with context.store.read() as tx:
        keys = await job_rows.keys_of_run(tx, int(repository), int(number))
    for key in keys:
        async with context.store.transaction() as tx:
            await _attribute_log(tx, key)


async def _attribute_log(tx: Transaction, key: JobKey) -> None:
    jobs = await collected.jobs_of_run(tx, key["repository_id"], key["run_id"])
    before = await job_rows.lock_job(tx, key)
    owner = before and _owner(before, jobs)
    if before is None or owner is None:
        return
    after = log_attribution.with_owner(before, owner)
    if owner.key == key:
        if after != before:
            await job_rows.put_job(tx, after)
            count_days.request_days(tx, before, after)
        return
    there = await job_rows.lock_job(tx, owner.key)
    chosen = log_choice.prefer(there, after)
    await job_rows.delete_job(tx, key)
    await job_rows.put_job(tx, chosen)
    count_days.request_days(tx, before, there, chosen)


def _owner(row: JobRow, jobs: Sequence[WorkflowJobRow]) -> LogOwner | None:
    """Return the job of a log as GitHub's records have it now, None where they do not."""
    job_id: int | None = row["job_id"]
    if row["job_id"] < 0:  # its name is the artifact's
        named = [Job(one["id"], one["name"] or "", one["run_attempt"] or 1) for one in jobs]
        job_id = attribute_artifact(
            row["job_name"], named, attempt=row["run_attempt"], run_id=row["run_id"]
        ).job_id
    job = next((one for one in jobs if one["id"] == job_id), None)
    return log_attribution.owner_from_job(job, jobs) if job else None
