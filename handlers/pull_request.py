"""pull_request: the pull request, its label history, and what is dispatched to the backends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.core.json_fields import as_commit
from bot.ingest.deliveries import record
from bot.ingest.tables import PULL_HEAD, PULL_LABEL_EVENT, PULL_REQUEST
from bot.oot.dispatch.redispatch import request_selection
from bot.oot.results.task_keys import request_publish
from bot.oot.verdict.pull_state import is_label
from bot.oot.verdict.view import OK_TO_TEST

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.deliveries import Delivery

DISPATCHED = frozenset({"opened", "reopened", "synchronize", "closed", "ready_for_review"})

router = Router()


@router.register("pull_request")
async def pull_request(event: Delivery, tx: Transaction) -> None:
    """Record the pull request; dispatch changes of its head, base branch or state; labels change which checks it has.

    One label approves a held pull request, if the account that added it has the right: a task asks GitHub.
    """
    pull = record(tx, event, PULL_REQUEST)
    if as_commit(pull["head_sha"]):
        record(tx, event, PULL_HEAD)  # that record has one head, people choose among all there were
    if event.action in {"labeled", "unlabeled"}:
        label = record(tx, event, PULL_LABEL_EVENT)["label_name"]
        if event.action == "labeled" and is_label(label or "", OK_TO_TEST):
            tx.enqueue("approve", event.delivery_id)
    if event.action in {"labeled", "unlabeled", "reconciled"}:
        request_publish(tx, event.repo, pull["number"])
        await request_selection(tx, event.repo, pull["number"])
    if event.action in DISPATCHED or _changes_base(event):
        tx.enqueue("relay", event.delivery_id)


def _changes_base(event: Delivery) -> bool:
    """Whether the pull request targets another branch now: results for the previous one say nothing about it."""
    changes = event.data.get("changes")
    return event.action == "edited" and isinstance(changes, dict) and "base" in changes
