"""run_again: a backend's run is run again (key: `dispatch/attempt/run_id`, the attempt it is at now).

Where GitHub cannot do that any more (too old, unknown, another CI), a fresh dispatch takes its place, unless the pull
request is closed or has a newer commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from bot import relay
from bot.domain import run_key
from bot.errors import GitHubRefused, GiveUp, RetryLater
from bot.store import dispatches, reruns

if TYPE_CHECKING:
    from bot.context import Context
    from bot.store.queue import Task

log = structlog.get_logger("bot.tasks.run_again")

Row = dict[str, Any]
STILL_RUNNING = 15.0  # seconds until a run that reported its end is asked about again


async def run(context: Context, task: Task) -> None:
    """Ask GitHub to run a run again, unless it does so already; else dispatch afresh."""
    identifier, attempt, run_id = run_key.parse_rerun(task.key)
    async with context.store.read() as tx:
        dispatch = await dispatches.get(tx, identifier)
        asked = [row for row in await reruns.of_dispatches(tx, [identifier]) if row["run_id"] == run_id]
    wish = next((row for row in asked if row["from_attempt"] == attempt), None)
    if dispatch is None or wish is None:
        raise GiveUp(f"nobody asked for {task.key}")
    if wish["state"] != "asked":
        return
    again = await _on_github(context, dispatch, wish)
    async with context.store.transaction() as tx:
        await dispatches.take_turns(tx, dispatch["upstream_repo"], dispatch["pr_number"])
        await reruns.settle(tx, wish, "sent" if again else "impossible")
        if not again:
            await relay.afresh(tx, dispatch, wish["cause"])  # once, however many runs that asked for
        tx.publish(dispatch["upstream_repo"], dispatch["pr_number"])
    log.info("re-run", backend=dispatch["backend"], run=run_id, at_github=again, cause=wish["cause"])


async def _on_github(context: Context, dispatch: Row, wish: Row) -> bool:
    """Return whether GitHub runs the run again; False when it never will."""
    run_id = wish["run_id"]
    if not (run_id.isascii() and run_id.isdigit()):
        return False
    client = context.relay.client(dispatch["backend"], actions="write")
    verb = "rerun" if wish["scope"] == "all" else "rerun-failed-jobs"
    try:
        found = await client.getitem(client.path(f"actions/runs/{run_id}"))
        if found["run_attempt"] > wish["from_attempt"]:
            return True
        if found["status"] != "completed":
            raise RetryLater(f"run {run_id} has not ended yet", after=STILL_RUNNING)
        await client.post(client.path(f"actions/runs/{run_id}/{verb}"), data={})
    except GitHubRefused as error:
        log.info("cannot be run again", backend=dispatch["backend"], run=run_id, reason=str(error))
        return False
    return True
