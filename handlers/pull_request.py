"""pull_request: the pull request as it is, its label history, and what the backends should be told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.delivery import record
from bot.domain.labels import is_label
from bot.domain.reading import as_commit
from bot.domain.records import PULL_HEAD, PULL_LABEL_EVENT, PULL_REQUEST
from bot.domain.words import OK_TO_TEST

if TYPE_CHECKING:
    from bot.delivery import Delivery
    from bot.store import Transaction

RELAYED = frozenset({"opened", "reopened", "synchronize", "closed", "ready_for_review"})

router = Router()


@router.register("pull_request")
async def pull_request(event: Delivery, tx: Transaction) -> None:
    """Keep the pull request; relay what changes its head or its life; labels change which checks it shows.

    One label lets a held pull request go, if whoever put it on may say so: a task asks GitHub that.
    """
    kept = record(tx, event, PULL_REQUEST)
    if as_commit(kept["head_sha"]):
        record(tx, event, PULL_HEAD)  # the record above has one head, people choose among all there were
    if event.action in {"labeled", "unlabeled"}:
        label = record(tx, event, PULL_LABEL_EVENT)["label_name"]
        if event.action == "labeled" and is_label(label or "", OK_TO_TEST):
            tx.enqueue("approve", event.delivery_id)
    if event.action in {"labeled", "unlabeled", "reconciled"}:
        tx.publish(event.repo, kept["number"])
    if event.action in RELAYED:
        tx.enqueue("relay", event.delivery_id)
