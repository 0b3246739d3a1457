"""workflow_job: one job of a workflow run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.delivery import record
from bot.domain.records import WORKFLOW_JOB

if TYPE_CHECKING:
    from bot.delivery import Delivery
    from bot.store import Transaction

router = Router()


@router.register("workflow_job")
async def workflow_job(event: Delivery, tx: Transaction) -> None:
    """Keep the job."""
    record(tx, event, WORKFLOW_JOB)
