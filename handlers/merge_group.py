"""merge_group: a merge queue waits for the gate on a commit of its own, or does not any more."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gidgethub.routing import Router

from bot.delivery import record_repository
from bot.store import merge_groups

if TYPE_CHECKING:
    from bot.delivery import Delivery
    from bot.store import Transaction

QUEUE_REF = re.compile(r"refs/heads/gh-readonly-queue/.+/pr-([1-9][0-9]{0,15})-[0-9a-f]{40,64}")

router = Router()


@router.register("merge_group")
async def merge_group(event: Delivery, tx: Transaction) -> None:
    """Have the verdict on the pull request whose turn it is, and on those it builds on, told on the queue's commit."""
    record_repository(tx, event, event.data.get("repository"))
    group = event.data.get("merge_group")
    if tx.replaying or not isinstance(group, dict):
        return
    ref, sha = group.get("head_ref"), group.get("head_sha")
    found = QUEUE_REF.fullmatch(ref) if isinstance(ref, str) else None
    if found is None or not isinstance(sha, str):
        return
    if event.action == "checks_requested":
        base = group.get("base_sha")
        known = base if isinstance(base, str) else None
        await merge_groups.begin(tx, event.repo, sha, base_sha=known, number=int(found[1]))
        tx.publish(event.repo, int(found[1]))
    elif event.action == "destroyed":
        await merge_groups.end(tx, event.repo, sha, number=int(found[1]))
