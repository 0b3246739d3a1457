"""cancel: somebody wants a backend's run to stop (key: `dispatch/run_id`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from bot.domain import lifecycle, words
from bot.errors import GitHubRefused, GiveUp
from bot.store import commands, dispatches, jobs

if TYPE_CHECKING:
    from bot.context import Context
    from bot.github import Client
    from bot.store import Transaction
    from bot.store.queue import Task

log = structlog.get_logger("bot.tasks.cancel")

Row = dict[str, Any]
OVER = 409  # the run has ended by itself: its own word stands


async def run(context: Context, task: Task) -> None:
    """Ask GitHub to cancel the run, then conclude its jobs: a cancelled job reports nothing any more."""
    identifier, _, run_id = task.key.partition("/")
    async with context.store.read() as tx:
        dispatch = await dispatches.get(tx, identifier)
    if dispatch is None:
        raise GiveUp(f"there is no dispatch {identifier}")
    client = context.relay.client(dispatch["backend"], actions="write")
    try:
        await client.post(client.path(f"actions/runs/{run_id}/cancel"), data={})
    except GitHubRefused as error:
        if error.status != OVER:
            log.warning("not cancelled", backend=dispatch["backend"], run=run_id, reason=str(error))
            async with context.store.transaction() as tx:
                await _take_back(tx, dispatch, run_id, error.message)
            return
        if not await _was_cancelled(client, run_id):
            log.info("had ended already", backend=dispatch["backend"], run=run_id)
            return
    async with context.store.transaction() as tx:
        await _conclude(tx, identifier, run_id)
        tx.publish(dispatch["upstream_repo"], dispatch["pr_number"])
    log.info("cancelled", backend=dispatch["backend"], run=run_id)


async def _was_cancelled(client: Client, run_id: str) -> bool:
    """Whether a run that has ended was cancelled, perhaps by us: the answer to that may have been lost."""
    found = await client.getitem(client.path(f"actions/runs/{run_id}"))
    return bool(found["conclusion"] == "cancelled")


async def _take_back(tx: Transaction, dispatch: Row, run_id: str, reason: str) -> None:
    """Say that the run goes on to whoever was told that it is being cancelled."""
    repo, number = dispatch["upstream_repo"], dispatch["pr_number"]
    name = dispatch["device"] or dispatch["backend"]
    said, end = words.being_cancelled(name), words.not_cancelled(name)
    answer = f"GitHub does not cancel run {run_id}{end}{reason.rstrip('.')}."
    await commands.amend(tx, repo, number, said=said, answer=answer, known_by=end)
    tx.publish(repo, number)


async def _conclude(tx: Transaction, dispatch_id: str, run_id: str) -> None:
    for job in jobs.in_order(await jobs.of_dispatches(tx, [dispatch_id])):
        if job["run_id"] == run_id and job["status"] == "in_progress":
            await jobs.move(tx, job, lifecycle.swept(job, now=tx.now, conclusion="cancelled"))
