"""Dispatches under way: those that wait to be sent, for approval or for a report, and those whose jobs run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import sqlalchemy as sa

from bot.db.rows import select
from bot.oot.results.store.dispatches import OPEN
from bot.oot.results.tables import AWAITED, UNFINISHED, DispatchRow, oot_dispatch, oot_workflow_job
from bot.oot.statistics.days import DAY

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.db.transaction import Transaction

DISPATCH, JOB = oot_dispatch.c, oot_workflow_job.c
GIVEN_UP = 7 * DAY  # milliseconds after which a dispatch no longer waits for a report
MOST = 2_000  # dispatches that are read
Way = Literal["held", "queued", "sending", "waiting", "running"]
WAYS: tuple[Way, ...] = ("held", "queued", "sending", "waiting", "running")
WAY_OF_STATE: dict[str, Way] = {"held": "held", "waiting": "queued", "pending": "sending", "sent": "waiting"}


@dataclass(frozen=True, kw_only=True)
class Underway:
    """A dispatch that is not finished."""

    row: DispatchRow
    way: Way
    since: int  # epoch milliseconds: when it was made, sent, or began to run


async def read_underway(tx: Transaction, *, hidden: Collection[str]) -> list[Underway]:
    """Return the dispatches under way, the oldest first, without those of `hidden` upstreams (case folded)."""
    visible = sa.func.lower(DISPATCH.upstream_repo).not_in(sorted(hidden))
    recent = DISPATCH.created_at >= tx.now - GIVEN_UP
    waiting = select(DispatchRow, oot_dispatch).where(DISPATCH.state.in_(OPEN), AWAITED, recent, visible)
    rows = await tx.fetch(waiting.order_by(DISPATCH.created_at, DISPATCH.id).limit(MOST))
    found = {row["id"]: _waiting(row) for row in rows}
    began = await _running(tx)
    running = select(DispatchRow, oot_dispatch).where(DISPATCH.id.in_(sorted(began)), recent, visible)
    for row in await tx.fetch(running):
        found[row["id"]] = Underway(row=row, way="running", since=began[row["id"]])
    return sorted(found.values(), key=lambda one: (one.since, one.row["id"]))


def _waiting(row: DispatchRow) -> Underway:
    sent = row["dispatched_at"] if row["state"] == "sent" else None
    return Underway(row=row, way=WAY_OF_STATE[row["state"]], since=sent or row["created_at"])


async def _running(tx: Transaction) -> dict[str, int]:
    """Return the dispatches with a job that runs, and since when."""
    began = sa.func.min(sa.func.coalesce(JOB.started_at, JOB.received_at))
    query = sa.select(JOB.dispatch_id, began).where(UNFINISHED, JOB.dispatch_id.is_not(None))
    rows = await tx.run(query.group_by(JOB.dispatch_id).order_by(began).limit(MOST))
    return {identifier: int(at) for identifier, at in rows}
