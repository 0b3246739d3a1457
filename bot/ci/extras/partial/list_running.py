"""partial: lists what runs have left that have been running for a while, for results so far. Key: nothing.

GitHub lists the artifacts of a run that is not over. Only so many calls are made in a pass that a fifth of what an hour
allows is never exceeded; runs that were listed longest ago come first.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import structlog

from bot.ci.collect import collection_scope
from bot.ci.collect.settings import CollectSettings
from bot.ci.collect.tasks import list_artifacts
from bot.ci.extras.partial import running_rows
from bot.core.errors import GitHubRefused, OverBudget, RetryLater

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.ingest.rows import WorkflowRunRow
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.ci.extras.partial")

EVERY = 600.0  # seconds
MINUTE, DAY = 60_000, 86_400_000  # milliseconds
YOUNG = 15 * MINUTE  # runs that have not run for so long are left alone
OLD = 2 * DAY  # of which no end was heard
SHARE = 0.2  # of the calls that collecting may make


async def list_running(context: Context, _task: Task) -> None:
    """List the artifacts of some running runs."""
    most = calls_of_a_pass(context.settings.of(CollectSettings).ci_calls_per_hour)
    async with context.store.read() as tx:
        runs = await _running(tx, context)
    made: Counter[str] = Counter()
    for run in runs:
        account = run["repo"].partition("/")[0].casefold()
        if made[account] >= most:
            continue
        made[account] += 1
        try:
            await _list(context, run)
        except GitHubRefused as error:  # the others can still be listed
            log.warning("a running run cannot be listed", repo=run["repo"], run=run["id"], reason=str(error))
        except (OverBudget, RetryLater) as error:
            log.info("listing running runs ends early", reason=str(error))
            return


def calls_of_a_pass(an_hour: int) -> int:
    """Return how many calls a pass may make about one account.

    >>> calls_of_a_pass(2000)
    66
    """
    return int(an_hour * SHARE * EVERY / 3600)


async def _running(tx: Transaction, context: Context) -> list[WorkflowRunRow]:
    """Return the collected runs that have been running for a while, those listed longest ago first."""
    return [
        run
        for run in await running_rows.running_runs(tx, began_before=tx.now - YOUNG, since=tx.now - OLD)
        if not await collection_scope.run_refusal(
            tx, context.settings, run["repo"], workflow=run["name"], path=run["path"]
        )
    ]


async def _list(context: Context, run: WorkflowRunRow) -> None:
    """List the first 100 artifacts of a run, in one call."""
    async with context.store.transaction() as tx:
        await running_rows.note_listing(tx, run)
    client = context.app_for(run["repo"]).client(run["repo"], since=run["received_at"], actions="read")
    path = f"actions/runs/{run['id']}/artifacts"
    found = await list_artifacts.read_pages(context, client, run["repo"], path, "artifacts", most=1)
    if found:
        await list_artifacts.store_running(context, run, found)


async def prune(context: Context) -> dict[str, int]:
    """Delete when runs were listed that are over for long."""
    return await running_rows.delete_listings(context, before=context.clock.now() - OLD)
