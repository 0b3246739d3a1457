"""merge_group: a merge queue waits for the gate on a commit of its own, or no longer does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.core.json_fields import as_commit, as_text
from bot.ingest.deliveries import record_repository
from bot.oot.publish import merge_queue
from bot.oot.results.task_keys import request_publish

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.ingest.deliveries import Delivery

QUEUE_REF = re.compile(r"refs/heads/gh-readonly-queue/.+/pr-([1-9][0-9]{0,15})-[0-9a-f]{40,64}")

router = Router()


@router.register("merge_group")
async def merge_group(event: Delivery, tx: Transaction) -> None:
    """Publish the verdict of the queued pull request, and of those ahead of it, on the queue's commit."""
    record_repository(tx, event, event.data.get("repository"))
    group = event.data.get("merge_group")
    if tx.replaying or not isinstance(group, dict):
        return
    sha = as_text(group.get("head_sha"))
    match = QUEUE_REF.fullmatch(as_text(group.get("head_ref")) or "")
    if match is None or sha is None:
        return
    number = int(match[1])
    if event.action == "checks_requested":
        base, branch = as_commit(group.get("base_sha")), as_text(group.get("base_ref"))
        base_ref = branch.removeprefix("refs/heads/") if branch else None
        await merge_queue.record_group(tx, event.repo, sha, base_sha=base, base_ref=base_ref, number=number)
        request_publish(tx, event.repo, number)
    elif event.action == "destroyed":
        await merge_queue.record_end_of_group(
            tx, event.repo, sha, number=number, merged=event.data.get("reason") == "merged"
        )
    for other in await merge_queue.pulls_building_on(tx, event.repo, sha):
        request_publish(tx, event.repo, other)
