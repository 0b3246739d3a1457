"""workflow_run: one attempt of a workflow run; GitHub's own word on whether a backend is green."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.delivery import record
from bot.domain import run_key
from bot.domain.records import WORKFLOW_RUN

if TYPE_CHECKING:
    from bot.delivery import Delivery
    from bot.store import Transaction

router = Router()


@router.register("workflow_run")
async def workflow_run(event: Delivery, tx: Transaction) -> None:
    """Keep the run; when it ended, whoever waits for its verdict looks again."""
    kept = record(tx, event, WORKFLOW_RUN)
    if kept["status"] == "completed":
        tx.enqueue("confirm", run_key.of(event.repo, kept["id"], kept["run_attempt"]))
