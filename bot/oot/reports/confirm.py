"""confirm: compares reports with GitHub's status of the backend's run. Key: `owner/repo/run_id/run_attempt`.

A green L4 needs it, and it concludes jobs of any level that never reported their end. Usually the run's own delivery
has the status; otherwise GitHub is asked for L4, soon after the report and then every ten minutes until JOB_TIMEOUT.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from bot.core.errors import GitHubRefused, NotYet, RetryLater
from bot.github import refusals
from bot.ingest import delivery, inbox
from bot.oot.allowlist import rows as allowlists
from bot.oot.reports import lifecycle
from bot.oot.results import task_keys
from bot.oot.results.store import dispatches, jobs, reruns, run_statuses
from bot.oot.results.task_keys import request_publish
from bot.oot.verdict.verdict import PASSING

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.oot.results.tables import JobRow
    from bot.queue.tasks import Task

SOON = (5.0, 10.0, 20.0, 30.0, 60.0)  # seconds between the first requests
THEN = 600.0


async def confirm_run(context: Context, task: Task) -> None:
    """Record GitHub's status of one attempt of one run, and have the pull requests published again."""
    backend, run_id, attempt = task_keys.parse_run(task.key)
    unknown = await context.store.write(partial(_from_delivery, context, backend, run_id, attempt))
    if unknown is None:
        return
    waiting, patience = unknown
    listed = waiting[0]["downstream_repo"]
    age = context.clock.now() - _first(waiting, attempt)
    over = age > patience * 1000
    wait = SOON[task.attempts - 1] if task.attempts <= len(SOON) else THEN
    found, status = await _read_run(context, (listed, run_id, attempt), age=age, over=over, wait=wait)
    async with context.store.transaction() as tx:
        if found is not None:
            await inbox.put(tx, delivery.delivery_of_answer("workflow_run", found, found["repository"]))
            if found["status"] == "completed":
                return
        if found is None or over:
            await run_statuses.record(tx, backend, run_id, attempt, status)
            await _publish(tx, waiting)
            return
    raise NotYet(f"run {run_id} of {listed} is still {found['status']}", after=wait)


async def _from_delivery(
    context: Context, backend: str, run_id: str, attempt: int, tx: Transaction
) -> tuple[list[JobRow], int] | None:
    """Record the status that the run's own delivery had; without one, return the jobs that wait, and for how long."""
    waiting = await jobs.read_for_run(tx, backend, run_id)
    if not waiting:
        return None
    status_row = await run_statuses.read_for_attempt(tx, backend, run_id, attempt)
    if status_row is None or status_row["status"] not in {"completed", "missing"}:
        return waiting, await _patience(tx, context, backend)
    if (conclusion := status_row["conclusion"]) and conclusion not in PASSING:
        await _end(tx, [job for job in waiting if job["run_attempt"] == attempt], conclusion)
        await _begin_rerun(tx, waiting, run_id, attempt)
    await _publish(tx, waiting)
    return None


async def _read_run(
    context: Context, run: tuple[str, str, int], *, age: int, over: bool, wait: float
) -> tuple[dict[str, Any] | None, str]:
    """Return the run, and the status to record when it has not ended in time; raises NotYet while there is time."""
    backend, run_id, attempt = run
    try:
        found = await _ask(context, backend, run_id, attempt)
    except GitHubRefused as error:
        missing = error.gone
        if not over and not (missing and age >= refusals.YOUNG):
            raise NotYet(f"run {run_id} of {backend} cannot be read: {error}", after=wait) from error
        return None, "missing" if missing else "unreadable"
    except RetryLater as error:
        if not over:
            raise NotYet(str(error), after=error.after) from error  # its delivery may still arrive
        return None, "unconfirmed"
    return found, "unconfirmed" if found else "missing"


def _first(waiting: list[JobRow], attempt: int) -> int:
    """Return when this attempt, or else the run, was first reported on."""
    here: list[int] = [job["received_at"] for job in waiting if job["run_attempt"] == attempt]
    anywhere: list[int] = [job["received_at"] for job in waiting]
    return min(here or anywhere)


async def _patience(tx: Transaction, context: Context, backend: str) -> int:
    """Return how many seconds a run may take to end."""
    allowlist = await allowlists.in_force(tx)
    entry = allowlist.find(backend) if allowlist else None
    return (entry.job_timeout if entry else None) or context.settings.job_timeout


async def _ask(context: Context, backend: str, run_id: str, attempt: int) -> dict[str, Any] | None:
    """Return the run from GitHub, None when its id cannot be one of GitHub's; raises GitHubRefused."""
    if not (run_id.isascii() and run_id.isdigit()):
        return None
    client = context.backend_github.client(backend, actions="read")
    url = client.path("actions/runs/{run}/attempts/{attempt}")
    found: dict[str, Any] = await client.getitem(url, {"run": run_id, "attempt": str(attempt)})
    return found


async def _end(tx: Transaction, reported: list[JobRow], conclusion: str) -> None:
    """Conclude jobs whose run is over without their report; a late report still counts."""
    for job in jobs.in_lock_order(reported):
        if job["status"] == "in_progress":
            await jobs.change_if_unchanged(tx, job, lifecycle.swept(job, now=tx.now, conclusion=conclusion))


async def _begin_rerun(tx: Transaction, waiting: list[JobRow], run_id: str, attempt: int) -> None:
    """Have a re-run begin that was asked for while the run went on: by itself it asks GitHub every two minutes."""
    dispatched = {job["dispatch_id"] for job in waiting if job["dispatch_id"]}
    for row in await reruns.read_for_dispatches(tx, dispatched):
        if (row["state"], row["run_id"], row["from_attempt"]) == ("asked", run_id, attempt):
            tx.enqueue("run_again", task_keys.rerun_key(row["dispatch_id"], attempt, run_id))


async def _publish(tx: Transaction, waiting: list[JobRow]) -> None:
    for identifier in {job["dispatch_id"] for job in waiting}:
        dispatch = await dispatches.get_dispatch(tx, identifier)
        if dispatch:
            request_publish(tx, dispatch["upstream_repo"], dispatch["pr_number"])
