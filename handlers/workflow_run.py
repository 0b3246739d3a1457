"""workflow_run: one attempt of a workflow run; GitHub's own conclusion confirms a backend's report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.evidence.collect import fetches
from bot.ingest.deliveries import record
from bot.ingest.tables import WORKFLOW_RUN
from bot.oot.results import runs, task_keys

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.deliveries import Delivery

ARTIFACTS_DELAY = 10.0  # seconds until GitHub lists most of them

router = Router()


@router.register("workflow_run")
async def workflow_run(event: Delivery, tx: Transaction) -> None:
    """Record the run; when it has completed, reports that wait for it are confirmed and its artifacts listed.

    Pull requests whose verdict waits for it are published again.
    """
    run = record(tx, event, WORKFLOW_RUN)
    if run["status"] == "completed":
        tx.enqueue(
            "artifacts", fetches.run_key(event.repo, run["id"], run["run_attempt"]), delay=ARTIFACTS_DELAY
        )
        tx.enqueue("confirm", task_keys.run_key(event.repo, run["id"], run["run_attempt"]))
    for repo, number in await runs.read_pulls_beside(tx, run):
        task_keys.request_publish(tx, repo, number)
