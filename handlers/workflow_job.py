"""workflow_job: one job of a workflow run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.ingest.delivery import record
from bot.ingest.records import WORKFLOW_JOB

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.delivery import Delivery

router = Router()


@router.register("workflow_job")
async def workflow_job(event: Delivery, tx: Transaction) -> None:
    """Record the job."""
    record(tx, event, WORKFLOW_JOB)
