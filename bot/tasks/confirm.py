"""confirm: what does GitHub itself say of a backend's run? Key: `owner/repo/run_id/run_attempt`.

A green L4 needs it, and it ends jobs of any level that never said how they ended. The run's own delivery usually
tells; for L4 GitHub is asked else, soon after the report and then every ten minutes until JOB_TIMEOUT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.domain import lifecycle, run_key
from bot.domain.verdict import PASSING
from bot.errors import GitHubRefused, NotInstalled, NotYet, RetryLater
from bot.store import allowlists, dispatches, inbox, jobs
from bot.tasks import told

if TYPE_CHECKING:
    from bot.context import Context
    from bot.store import Transaction
    from bot.store.queue import Task

SOON = (5.0, 10.0, 20.0, 30.0, 60.0)  # seconds between the first questions
THEN = 600.0
YOUNG = 120_000  # milliseconds after the first report during which GitHub may not show a run yet


async def run(context: Context, task: Task) -> None:
    """Make GitHub's word on one attempt of one run known, and let whoever waits for it look again."""
    backend, run_id, attempt = run_key.parse(task.key)
    async with context.store.transaction() as tx:
        waiting = await jobs.of_run(tx, backend, run_id)
        word = await jobs.word_of_github(tx, backend, run_id, attempt)
        patience = await _patience(tx, context, backend)
        if not waiting:
            return
        if word and word["status"] in {"completed", "missing"}:
            if (conclusion := word["conclusion"]) and conclusion not in PASSING:
                await _end(tx, [job for job in waiting if job["run_attempt"] == attempt], conclusion)
            await _publish(tx, waiting)
            return
    listed = waiting[0]["downstream_repo"]
    age = context.clock.now() - _first(waiting, attempt)
    over = age > patience * 1000
    wait = SOON[task.attempts - 1] if task.attempts <= len(SOON) else THEN
    found, status = await _hear(context, (listed, run_id, attempt), age=age, over=over, wait=wait)
    async with context.store.transaction() as tx:
        if found is not None:
            await inbox.put(tx, told.of("workflow_run", found, found["repository"]))
            if found["status"] == "completed":
                return
        if found is None or over:
            await jobs.keep_word(tx, backend, run_id, attempt, status)
            await _publish(tx, waiting)
            return
    raise NotYet(f"run {run_id} of {listed} is still {found['status']}", after=wait)


async def _hear(
    context: Context, run: tuple[str, str, int], *, age: int, over: bool, wait: float
) -> tuple[dict[str, Any] | None, str]:
    """Return the run, and the status to record when it has not ended in time; raises NotYet while there is time."""
    backend, run_id, attempt = run
    try:
        found = await _ask(context, backend, run_id, attempt)
    except GitHubRefused as error:
        missing = error.status == 404 and not isinstance(error, NotInstalled)
        if not over and not (missing and age >= YOUNG):
            raise NotYet(f"run {run_id} of {backend} cannot be read: {error}", after=wait) from error
        return None, "missing" if missing else "unreadable"
    except RetryLater as error:
        if not over:
            raise NotYet(str(error), after=error.after) from error  # its own delivery needs no call
        return None, "unconfirmed"
    return found, "unconfirmed" if found else "missing"


def _first(waiting: list[dict[str, Any]], attempt: int) -> int:
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
    """Return the run as GitHub describes it, None when there can be none of that name; raises GitHubRefused."""
    if not (run_id.isascii() and run_id.isdigit()):
        return None
    client = context.relay.client(backend, actions="read")
    url = client.path("actions/runs/{run}/attempts/{attempt}")
    found: dict[str, Any] = await client.getitem(url, {"run": run_id, "attempt": str(attempt)})
    return found


async def _end(tx: Transaction, reported: list[dict[str, Any]], conclusion: str) -> None:
    """Conclude the jobs that will not report any more: their run is over. A report that comes after all counts."""
    for job in jobs.in_order(reported):
        if job["status"] == "in_progress":
            await jobs.move(tx, job, lifecycle.swept(job, now=tx.now, conclusion=conclusion))


async def _publish(tx: Transaction, waiting: list[dict[str, Any]]) -> None:
    for identifier in {job["dispatch_id"] for job in waiting}:
        dispatch = await dispatches.get(tx, identifier)
        if dispatch:
            tx.publish(dispatch["upstream_repo"], dispatch["pr_number"])
