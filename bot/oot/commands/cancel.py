"""The task `cancel`: a backend's run is cancelled on request (key: `dispatch/run_id`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from bot.core.errors import GitHubRefused, GiveUp
from bot.oot.allowlist import rows as allowlists
from bot.oot.reports import lifecycle
from bot.oot.results.store import commands, dispatches, jobs
from bot.oot.results.task_keys import request_publish
from bot.oot.verdict import words

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.github.client import Client
    from bot.oot.results.tables import DispatchRow
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.oot.commands.cancel")

ALREADY_ENDED = 409  # the run's own conclusion stands


async def cancel_run(context: Context, task: Task) -> None:
    """Ask GitHub to cancel the run, then conclude its jobs: cancelled jobs do not report."""
    identifier, _, run_id = task.key.partition("/")
    async with context.store.read() as tx:
        dispatch = await dispatches.get_dispatch(tx, identifier)
    if dispatch is None:
        raise GiveUp(f"there is no dispatch {identifier}")
    began = dispatch["dispatched_at"]
    client = context.backend_github.client(dispatch["backend"], since=began, actions="write")
    try:
        await client.post(client.path(f"actions/runs/{run_id}/cancel"), data={})
    except GitHubRefused as error:
        if error.status != ALREADY_ENDED:
            log.warning("not cancelled", backend=dispatch["backend"], run=run_id, reason=str(error))
            async with context.store.transaction() as tx:
                await _correct_answer(tx, dispatch, run_id, error.message)
            return
        if not await _was_cancelled(client, run_id):
            log.info("the run had ended already", backend=dispatch["backend"], run=run_id)
            return
    async with context.store.transaction() as tx:
        await _conclude(tx, identifier, run_id)
        request_publish(tx, dispatch["upstream_repo"], dispatch["pr_number"])
    log.info("cancelled", backend=dispatch["backend"], run=run_id)


async def _was_cancelled(client: Client, run_id: str) -> bool:
    """Whether a run that has ended was cancelled, perhaps by us: our first answer may have been lost."""
    found = await client.getitem(client.path(f"actions/runs/{run_id}"))
    return bool(found["conclusion"] == "cancelled")


async def _correct_answer(tx: Transaction, dispatch: DispatchRow, run_id: str, reason: str) -> None:
    """Replace the answer that the run is being cancelled: it goes on."""
    repo, number = dispatch["upstream_repo"], dispatch["pr_number"]
    if number is None:
        return
    listed = await allowlists.in_force(tx)
    entry = listed.find(dispatch["backend"]) if listed else None
    name = entry.label if entry else dispatch["device"] or dispatch["backend"]
    before, end = words.being_cancelled(name), words.not_cancelled(name)
    answer = f"GitHub does not cancel run {run_id}{end}{reason.rstrip('.')}."
    await commands.amend(tx, repo, number, before=before, answer=answer, known_by=end)
    request_publish(tx, repo, number)


async def _conclude(tx: Transaction, dispatch_id: str, run_id: str) -> None:
    reported = jobs.in_lock_order(await jobs.read_for_dispatches(tx, [dispatch_id]))
    if not reported:
        await dispatches.end_cancelled(tx, dispatch_id, f"run {run_id} was cancelled before it reported")
    for job in reported:
        if job["run_id"] == run_id and job["status"] == "in_progress":
            await jobs.change_if_unchanged(tx, job, lifecycle.swept(job, now=tx.now, conclusion="cancelled"))
