"""workflow_job: one job of a workflow run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.ci.collect import keys
from bot.ci.collect.job_names import FAILED
from bot.ingest.delivery import record
from bot.ingest.records import WORKFLOW_JOB

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.delivery import Delivery

LOG_DELAY = 5.0  # seconds until GitHub usually has the log

router = Router()


@router.register("workflow_job")
async def workflow_job(event: Delivery, tx: Transaction) -> None:
    """Record the job; the log of one that failed is wanted. Those of the others are asked for once their run ends."""
    job = record(tx, event, WORKFLOW_JOB)
    if job["status"] == "completed" and job["conclusion"] in FAILED:
        tx.enqueue("log", keys.object_key(event.repo, job["id"]), delay=LOG_DELAY)
