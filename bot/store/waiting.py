"""Which open pull requests still wait for which backend? What was asked on their newest commit and not answered."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.store.tables import AWAITED, oot_dispatch, oot_workflow_job, records

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.store.transaction import Transaction

TOLD, JOB = oot_dispatch.c, oot_workflow_job.c
OPEN = ("pending", "held", "sent")
Waiting = dict[str, int]  # backend, case folded -> how many pull requests


async def by_backend(tx: Transaction, *, since: int, hidden: Collection[str]) -> Waiting:
    """Return how many open pull requests wait for each backend; what was asked before `since` is given up."""
    what = sa.select(TOLD.backend_key, TOLD.upstream_repo, TOLD.pr_number).distinct()
    unheard = what.where(TOLD.state.in_(OPEN), AWAITED, TOLD.created_at >= since, _newest_of_open())
    asked = (TOLD.level > 1, TOLD.action.is_distinct_from("closed"), TOLD.created_at >= since)
    running = what.join(oot_workflow_job, JOB.dispatch_id == TOLD.id).where(
        JOB.status == "in_progress", *asked, _newest_of_open()
    )
    pulls: dict[str, set[Any]] = defaultdict(set)
    for query in (unheard, running):
        for row in await tx.rows(query):
            if row["upstream_repo"].casefold() not in hidden:
                pulls[row["backend_key"]].add((row["upstream_repo"].casefold(), row["pr_number"]))
    return {key: len(found) for key, found in pulls.items()}


def _newest_of_open() -> sa.ColumnElement[bool]:
    pull = records["pull_request"].c
    return sa.exists().where(
        pull.number == TOLD.pr_number,
        pull.head_sha == TOLD.head_sha,
        sa.func.lower(pull.repo) == sa.func.lower(TOLD.upstream_repo),
        pull.state == "open",
    )
