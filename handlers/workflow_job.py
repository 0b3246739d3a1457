"""workflow_job: one job of a workflow run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.evidence.collect import fetches
from bot.ingest.deliveries import record
from bot.ingest.tables import WORKFLOW_JOB
from bot.jobs.job_names import FAILED

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.deliveries import Delivery

LOG_DELAY = 5.0  # seconds until GitHub usually has the log

router = Router()


@router.register("workflow_job")
async def workflow_job(event: Delivery, tx: Transaction) -> None:
    """Record the job and request the log of a failed one; other logs are requested once the run ends."""
    job = record(tx, event, WORKFLOW_JOB)
    if job["status"] == "completed" and job["conclusion"] in FAILED:
        tx.enqueue("log", fetches.object_key(event.repo, job["id"]), delay=LOG_DELAY)
