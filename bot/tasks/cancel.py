"""cancel: somebody wants a backend's run to stop (key: `dispatch/run_id`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from bot.errors import GitHubRefused, GiveUp
from bot.store import dispatches, jobs

if TYPE_CHECKING:
    from bot.context import Context
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
            raise
        log.info("had ended already", backend=dispatch["backend"], run=run_id)
        return
    async with context.store.transaction() as tx:
        await _conclude(tx, identifier, run_id)
        tx.enqueue("publish", f"{dispatch['upstream_repo']}#{dispatch['pr_number']}")
    log.info("cancelled", backend=dispatch["backend"], run=run_id)


async def _conclude(tx: Transaction, dispatch_id: str, run_id: str) -> None:
    for job in await jobs.of_dispatches(tx, [dispatch_id]):
        if job["run_id"] == run_id and job["status"] == "in_progress":
            ended = {
                "status": "completed",
                "conclusion": "cancelled",
                "completed_at": tx.now,
                "updated_at": tx.now,
                "flags": job["flags"] | {"cancelled": True},
            }
            await jobs.move(tx, job, ended)
