"""Jobs that GitHub tells of after their logs were read: whose a log is, and when its job ended, is looked at again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.ci.collect.attribution import Job, attribute_artifact
from bot.ci.collect.store import runs as collected
from bot.ci.utilization import claims, count_days, origin, rows
from bot.core.errors import GiveUp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.utilization.origin import Origin
    from bot.ci.utilization.rows import JobRow
    from bot.context import Context
    from bot.db.transaction import Changed, Transaction
    from bot.ingest.rows import WorkflowJobRow
    from bot.queue.tasks import Task

KIND = "utilization"
DAY = 86_400_000  # milliseconds


async def note(tx: Transaction, changed: Changed) -> None:
    """Before a commit: have the logs looked at again of runs whose jobs ended just now."""
    ended = {
        (int(row["repository_id"]), int(row["run_id"]))
        for row in changed.get("workflow_job", ())
        if row.get("conclusion") and row.get("run_id")
    }
    for repository_id, run_id in await rows.measured_runs(tx, sorted(ended)) if ended else ():
        tx.enqueue(KIND, f"{repository_id}/{run_id}")


async def run(context: Context, task: Task) -> None:
    """Look again at the logs of a run (key: repository and run, by id), one in a transaction."""
    repository, _, number = task.key.partition("/")
    if not repository.isdigit() or not number.isdigit():
        raise GiveUp(f"{task.key!r} names no run")
    async with context.store.read() as tx:
        keys = await rows.keys_of_run(tx, int(repository), int(number))
    for key in keys:
        async with context.store.transaction() as tx:
            await _again(tx, key)


async def _again(tx: Transaction, key: Sequence[int]) -> None:
    jobs = await collected.jobs_of_run(tx, key[0], key[1])
    before = await rows.held(tx, key)
    whose = before and _origin(before, jobs)
    if before is None or whose is None:
        return
    after = moved(before, whose)
    if whose.key == tuple(key):
        if after != before:
            await rows.put(tx, after)
            count_days.request(tx, before, after)
        return
    there = await rows.held(tx, whose.key)
    chosen = claims.preferred(there, after)
    await rows.delete(tx, key)
    await rows.put(tx, chosen)
    count_days.request(tx, before, there, chosen)


def _origin(row: JobRow, jobs: Sequence[WorkflowJobRow]) -> Origin | None:
    """Return the job of a log as GitHub's records have it now, None where they do not."""
    job_id: int | None = row["job_id"]
    if row["job_id"] < 0:  # its name is the artifact's
        named = [Job(one["id"], one["name"] or "", one["run_attempt"] or 1) for one in jobs]
        job_id = attribute_artifact(
            row["job_name"], named, attempt=row["run_attempt"], run_id=row["run_id"]
        ).job_id
    job = next((one for one in jobs if one["id"] == job_id), None)
    return origin.of_job(job, jobs) if job else None


def moved(row: JobRow, whose: Origin) -> JobRow:
    """Return a log's row as that of this job."""
    values: dict[str, Any] = {**row, **dict(zip(rows.KEY, whose.key, strict=True))}
    values |= origin.columns(whose, observed_s=row["observed_s"], day=row["day"])
    found: Any = values
    made: JobRow = found
    return made
