"""Task partial: lists the artifacts of runs that have been running for a while, for results so far. Key: nothing.

GitHub lists the artifacts of runs that are not over. A pass makes at most a fifth of the calls that its time allows;
runs listed longest ago come first.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import sqlalchemy as sa
import structlog

from bot.core.errors import GitHubRefused, OverBudget, RetryLater
from bot.db.rows import select
from bot.db.statements import literal_word
from bot.evidence.collect import artifacts
from bot.ingest.record_rows import WorkflowRunRow
from bot.ingest.retention import delete_rows
from bot.ingest.tables import records
from bot.job_reports.tables import running_listing
from bot.jobs import collection
from bot.jobs.settings import CollectSettings

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.job_reports.tables import RunningListing
    from bot.queue.tasks import Task

RUNS_MOST = 500
RUN, LISTING = records["workflow_run"], running_listing.c
log = structlog.get_logger("bot.job_reports.running_jobs")

PASS_SECONDS = 600.0  # seconds
MINUTE, DAY = 60_000, 86_400_000  # milliseconds
YOUNG_RUN = 15 * MINUTE  # runs that have not run for so long are left alone
OLD_RUN = 2 * DAY  # of which no end was heard
SHARE_OF_CALLS = 0.2  # of the calls that collecting may make


async def running_runs(tx: Transaction, *, began_before: int, since: int) -> list[WorkflowRunRow]:
    """Return the newest attempts of runs that began before a time and are not over; those listed longest ago first.

    Runs of which nothing was heard since a time are left out: they may have ended.
    """
    same = sa.and_(
        LISTING.repository_id == RUN.c.repository_id,
        LISTING.run_id == RUN.c.id,
        LISTING.run_attempt == RUN.c.run_attempt,
    )
    query = select(WorkflowRunRow, RUN).select_from(RUN.outerjoin(running_listing, same))
    query = query.where(
        RUN.c.status != literal_word("completed"),  # as the partial index has it
        RUN.c.received_at > since,
        sa.func.coalesce(RUN.c.run_started_at, RUN.c.created_at) < began_before,
    )
    runs = await tx.fetch(query.order_by(sa.func.coalesce(LISTING.at, 0), RUN.c.id).limit(RUNS_MOST))
    newest: dict[int, int] = {}
    for run in runs:
        newest[run["id"]] = max(newest.get(run["id"], 0), run["run_attempt"])
    return [run for run in runs if run["run_attempt"] == newest[run["id"]]]


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
    return {"listings of running runs": await delete_rows(context, running_listing, LISTING.at < before)}


async def list_running(context: Context, _task: Task) -> None:
    """List the artifacts of some running runs."""
    most = calls_of_a_pass(context.settings.of(CollectSettings).ci_calls_per_hour)
    async with context.store.read() as tx:
        runs = await _runs_to_list(tx, context)
    made: Counter[str] = Counter()
    for run in runs:
        account = run["repo"].partition("/")[0].casefold()
        if made[account] >= most:
            continue
        made[account] += 1
        try:
            await _list_run(context, run)
        except GitHubRefused as error:  # the others can still be listed
            log.warning("a running run cannot be listed", repo=run["repo"], run=run["id"], reason=str(error))
        except (OverBudget, RetryLater) as error:
            log.info("listing running runs ends early", reason=str(error))
            return


def calls_of_a_pass(an_hour: int) -> int:
    """Return how many calls a pass may make for one account.

    >>> calls_of_a_pass(2000)
    66
    """
    return int(an_hour * SHARE_OF_CALLS * PASS_SECONDS / 3600)


async def prune_listings(context: Context) -> dict[str, int]:
    """Delete the listings of runs that ended long ago."""
    return await delete_listings(context, before=context.clock.now() - OLD_RUN)


async def _runs_to_list(tx: Transaction, context: Context) -> list[WorkflowRunRow]:
    """Return the collected runs that have been running for a while, those listed longest ago first."""
    return [
        run
        for run in await running_runs(tx, began_before=tx.now - YOUNG_RUN, since=tx.now - OLD_RUN)
        if not await collection.run_refusal(
            tx, context.settings, run["repo"], workflow=run["name"], path=run["path"]
        )
    ]


async def _list_run(context: Context, run: WorkflowRunRow) -> None:
    """List the first 100 artifacts of a run, in one call."""
    async with context.store.transaction() as tx:
        await note_listing(tx, run)
    client = context.app_for(run["repo"]).client(run["repo"], since=run["received_at"], actions="read")
    path = f"actions/runs/{run['id']}/artifacts"
    listed = await artifacts.read_pages(context, client, run["repo"], path, "artifacts", most=1)
    if listed:
        await artifacts.store_running(context, run, listed)
