"""ci_sweep: asks again for what was lost on the way: runs without a list of artifacts, fetches that nobody works on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.collect import keys, scope
from bot.ci.collect.tables import ci_fetch, ci_listing
from bot.ingest.tables import records

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

MINUTE, DAY = 60_000, 86_400_000  # milliseconds
BACK = 3 * DAY
PATIENCE = 15 * MINUTE  # with a fetch that is wanted, or a run that has ended
MOST = 500  # of each in one sweep: the next one is ten minutes away
TASK = {"artifact": "collect", "log": "log"}  # kind of fetch -> kind of task
RUN = records["workflow_run"].c


async def run(context: Context, _task: Task) -> None:
    """Enqueue what is overdue."""
    async with context.store.read() as tx:
        if not await scope.whose(tx, context.settings):
            return
        overdue = [*await _unlisted(tx), *await _unfetched(tx)]
    async with context.store.transaction() as tx:
        for kind, key in overdue:
            tx.enqueue(kind, key)


async def _unlisted(tx: Transaction) -> list[tuple[str, str]]:
    """Return the tasks of runs of the last days without a pass over their artifacts, or with a forbidden one."""
    seen = sa.exists().where(
        ci_listing.c.repository_id == RUN.repository_id,
        ci_listing.c.run_id == RUN.id,
        ci_listing.c.run_attempt == RUN.run_attempt,
        (ci_listing.c.state != "forbidden") | (ci_listing.c.at > tx.now - DAY),
    )
    query = (
        sa.select(RUN.repo, RUN.id, RUN.run_attempt)
        .where(
            RUN.received_at > tx.now - BACK,
            RUN.received_at < tx.now - PATIENCE,
            RUN.status == "completed",
            ~seen,
        )
        .order_by(RUN.received_at)
        .limit(MOST)
    )
    found = (await tx.run(query)).all()
    return [("artifacts", keys.of_run(row.repo, row.id, row.run_attempt)) for row in found]


async def _unfetched(tx: Transaction) -> list[tuple[str, str]]:
    """Return the tasks of fetches that are overdue, and once a day of those that were forbidden."""
    c = ci_fetch.c
    waiting = (c.state == "wanted") & (c.asked_at < tx.now - PATIENCE)
    overdue = sa.func.coalesce(c.due_at, 0) < tx.now - PATIENCE
    query = (
        sa.select(RUN.repo, c.kind, c.object_id)
        .join(
            records["workflow_run"],
            (RUN.repository_id == c.repository_id)
            & (RUN.id == c.run_id)
            & (RUN.run_attempt == c.run_attempt),
        )
        .order_by(c.asked_at)
        .limit(MOST)
    )
    refused = (c.state == "forbidden") & (c.due_at < tx.now) & (c.asked_at > tx.now - BACK)
    found = [
        *(await tx.run(query.where(waiting, overdue))).all(),
        *(await tx.run(query.where(refused))).all(),
    ]
    return [(TASK[row.kind], keys.of_object(row.repo, row.object_id)) for row in found]
