"""Statements about running runs, and when their artifacts were last listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.extras.partial.tables import running_listing
from bot.db.rows import select
from bot.db.statements import literal_word
from bot.ingest.prune import delete_rows
from bot.ingest.rows import WorkflowRunRow
from bot.ingest.tables import records

if TYPE_CHECKING:
    from bot.ci.extras.partial.tables import RunningListing
    from bot.context import Context
    from bot.db.transaction import Transaction

RUNS_MOST = 500
RUN, L = records["workflow_run"], running_listing.c


async def running_runs(tx: Transaction, *, began_before: int, since: int) -> list[WorkflowRunRow]:
    """Return the newest attempts of runs that began before a time and are not over, those listed longest ago first.

    Of a run of which nothing was heard since a time it is not known whether it still runs.
    """
    same = sa.and_(
        L.repository_id == RUN.c.repository_id, L.run_id == RUN.c.id, L.run_attempt == RUN.c.run_attempt
    )
    query = select(WorkflowRunRow, RUN).select_from(RUN.outerjoin(running_listing, same))
    query = query.where(
        RUN.c.status != literal_word("completed"),  # as the partial index has it
        RUN.c.received_at > since,
        sa.func.coalesce(RUN.c.run_started_at, RUN.c.created_at) < began_before,
    )
    found = await tx.fetch(query.order_by(sa.func.coalesce(L.at, 0), RUN.c.id).limit(RUNS_MOST))
    newest: dict[int, int] = {}
    for run in found:
        newest[run["id"]] = max(newest.get(run["id"], 0), run["run_attempt"])
    return [run for run in found if run["run_attempt"] == newest[run["id"]]]


async def note_listing(tx: Transaction, run: WorkflowRunRow) -> None:
    """Note that a run's artifacts are listed now."""
    row: RunningListing = {
        "repository_id": run["repository_id"],
        "run_id": run["id"],
        "run_attempt": run["run_attempt"],
        "at": tx.now,
    }
    await tx.upsert(running_listing, [row], replaced=("at",))


async def delete_listings(context: Context, *, before: int) -> dict[str, int]:
    """Delete listings before a time."""
    return {"listings of running runs": await delete_rows(context, running_listing, L.at < before)}
