"""How long backends may take to report, and which open pull requests still wait for them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import sqlalchemy as sa

from bot.oot.results.dispatches import ON_OPEN_HEAD
from bot.oot.results.tables import AWAITED, oot_dispatch, oot_workflow_job

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bot.db.transaction import Transaction

DISPATCH, JOB = oot_dispatch.c, oot_workflow_job.c
OPEN = ("pending", "held", "sent")


class _WaitingPull(TypedDict):
    backend_key: str
    upstream_repo: str
    pr_number: int | None


Waiting = dict[str, int]  # backend, case folded -> how many pull requests


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Milliseconds by backend (name case folded), and for all others."""

    default: int
    own: Mapping[str, int]

    def of(self, backend: str) -> int:
        """Return one backend's timeout."""
        return self.own.get(backend.casefold(), self.default)

    @property
    def shortest(self) -> int:
        """The shortest of all."""
        return min([self.default, *self.own.values()])

    def cutoff(self, now: int, backend_key: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
        """Return the time before which a row of a backend has timed out."""
        if not self.own:
            return sa.literal(now - self.default, sa.BigInteger)
        whens = {key: sa.literal(now - limit, sa.BigInteger) for key, limit in sorted(self.own.items())}
        return sa.case(whens, value=backend_key, else_=sa.literal(now - self.default, sa.BigInteger))


async def by_backend(tx: Transaction, *, since: int, hidden: Collection[str]) -> Waiting:
    """Return how many open pull requests wait for each backend; dispatches before `since` do not count."""
    what = sa.select(DISPATCH.backend_key, DISPATCH.upstream_repo, DISPATCH.pr_number).distinct()
    unreported = what.where(DISPATCH.state.in_(OPEN), AWAITED, DISPATCH.created_at >= since, ON_OPEN_HEAD)
    asked = (DISPATCH.level > 1, DISPATCH.action.is_distinct_from("closed"), DISPATCH.created_at >= since)
    running = what.join(oot_workflow_job, JOB.dispatch_id == DISPATCH.id).where(
        JOB.status == "in_progress", *asked, ON_OPEN_HEAD
    )
    pulls: dict[str, set[tuple[str, int | None]]] = defaultdict(set)
    for query in (unreported, running):
        for row in await tx.rows_as(_WaitingPull, query):
            if row["upstream_repo"].casefold() not in hidden:
                pulls[row["backend_key"]].add((row["upstream_repo"].casefold(), row["pr_number"]))
    return {key: len(found) for key, found in pulls.items()}
