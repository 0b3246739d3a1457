"""Task reconcile: finds by listing what no delivery brought: what still runs (in_flight), and what features compare.

What differs from our records is stored as a delivery of source `api`, so that handlers repair the records and enqueue
whatever is due. Its GUID is a hash of its content: the same change found twice is one delivery.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from bot.core.errors import GitHubRefused, RetryLater
from bot.core.feature import load_each
from bot.ingest import archive, delivery_log, in_flight, pinned, redeliver, sweeps

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.ingest.reconcile")

NAME = "reconcile"
MARGIN = 5 * 60_000  # milliseconds a delivery about a pull request may take before we ask GitHub ourselves
LOG_BROKEN = 3_600_000  # milliseconds without a complete sweep of the log until it is no longer waited for


@dataclass(frozen=True, kw_only=True)
class Window:
    """The period of GitHub's lists that may be compared with our records; epoch milliseconds."""

    since: int  # when this bot first reconciled: what is older is not news
    complete_until: int  # every delivery before this has come in or is lost


async def reconcile_records(context: Context, _task: Task) -> None:
    """Compare every upstream repository, and everything in flight, with our records."""
    async with context.store.transaction() as tx:
        since = (await sweeps.begin(tx, context.github.app_id, NAME))["created_at"]
        window = Window(since=since, complete_until=await _complete_until(context, tx))
    found, failures = await in_flight.check_known(context), []
    comparisons = (*load_each(context.features, "reconcile"), in_flight.find_unknown)
    for repo in context.settings.upstream_repo:
        refused: str | None = None
        for compare in comparisons:
            try:
                found += await compare(context, repo, window)
            except (GitHubRefused, RetryLater) as error:  # the others can still be compared
                log.warning("what is open and running cannot be listed", repo=repo, reason=str(error))
                failures.append(error)
                refused = refused or (str(error) if isinstance(error, GitHubRefused) else None)
        async with context.store.transaction() as tx:
            await pinned.note_reached(tx, repo, refused)
    if found:
        log.warning("records were behind", repaired=found)
    if failures:
        raise failures[0]  # not finished: its age shows the operator
    async with context.store.transaction() as tx:
        await sweeps.finish(tx, context.github.app_id, NAME, reached=window.complete_until, found=found)


async def _complete_until(context: Context, tx: Transaction) -> int:
    """Return the time (epoch milliseconds) before which everything in GitHub's delivery log has come in or is lost.

    Newer changes are left to their deliveries: dispatching both now and when the delivery comes would run every
    backend twice.
    """
    app_id, accounts = context.github.app_id, await delivery_log.watched_accounts(context, tx)
    swept = await sweeps.get(tx, app_id, redeliver.NAME)
    reached = (swept["reached"] or 0) if swept else 0
    if swept and swept["tried_at"] is not None and swept["tried_at"] < tx.now - LOG_BROKEN:
        reached = max(reached, tx.now - LOG_BROKEN)
    pending = (
        await sweeps.oldest_missing(tx, app_id, most_requests=redeliver.MOST_WAITED, accounts=accounts),
        await archive.oldest_unhandled(tx),
    )
    return min([reached, *(at for at in pending if at is not None)]) - MARGIN
