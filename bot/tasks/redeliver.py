"""redeliver: what GitHub's delivery log holds and we never stored is asked for again.

GitHub never redelivers by itself, and its log goes back three days. Each sweep walks from now to where the last
complete one began. What is missing is remembered and asked for, once a sweep. What was asked for in vain (our address
may be out of GitHub's reach) is taken out of the log itself, as all deliveries are where they are pulled (see pull).
What strangers' repositories have sent comes after all of ours, a little at a time.
What GitHub cannot give is tried for as long as the log may hold it; lost is only what it does not hold any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from bot import metrics
from bot.errors import GitHubRefused, RetryLater
from bot.store import sweeps
from bot.tasks import delivery_log
from bot.tasks.delivery_log import DAY, Logged

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.context import Context
    from bot.github import GitHubApp
    from bot.store.queue import Task

log = structlog.get_logger("bot.tasks.redeliver")

Row = dict[str, Any]
NAME = "redeliver"
OVERLAP = 30 * 60_000  # milliseconds a sweep looks back behind the last one: rows may appear late
ON_THE_WAY = 60_000  # milliseconds a delivery may take from GitHub's log to our inbox
MOST_ASKS = 2  # for one delivery, then it is taken
WAITED_FOR = 6  # asks and tries to take it, within an hour: then nothing else waits for a delivery any longer
MOST_UNANSWERED = 3  # deliveries at a time: then it is GitHub that is away, and each may take half a minute
PATIENCE = 8 * 60_000  # milliseconds until a delivery that was asked for is asked for again
FORGET = 8 * DAY  # nothing is in any log for longer


@dataclass(frozen=True, kw_only=True)
class Swept:
    """What one sweep found."""

    missing: int  # deliveries the log has and we never stored
    asked: int  # of them, or of earlier ones, asked for or taken now


async def run(context: Context, _task: Task) -> None:
    """Sweep the log of each App; where deliveries are pulled, pull does."""
    if context.settings.pulls:
        return
    async with context.store.transaction() as tx:
        for app in delivery_log.apps(context):
            await sweeps.begin(tx, app.app_id, NAME)
    await delivery_log.of_each_app(context, sweep)


async def sweep(
    context: Context, app: GitHubApp, *, since: int | None = None, tell: Callable[[int], None] | None = None
) -> Swept:
    """Find what is missing and ask for it; `since` (epoch milliseconds) replaces where the last sweep began.

    `tell` hears for how many GitHub is asked now, before it takes its time.
    """
    until = context.clock.now() + 1 - (0 if context.settings.pulls else ON_THE_WAY)
    async with context.store.transaction() as tx:
        earlier = await sweeps.begin(tx, app.app_id, NAME)
    due = max((earlier["reached"] or 0) - OVERLAP, delivery_log.horizon(context))
    since = due if since is None else max(since, delivery_log.horizon(context))
    missing = 0
    async for page in delivery_log.unheard(context, app, since=since, until=until):
        missing += len(page)
        await delivery_log.remember(context, app, page)
    if since <= due:  # else what lies before it was not looked at
        async with context.store.transaction() as tx:
            await sweeps.finish(tx, app.app_id, NAME, reached=until, found=missing)
    asked = await get_missing(context, app, tell=tell)
    if missing or asked:
        log.warning("deliveries were missing", app=app.app_id, missing=missing, asked=asked)
    return Swept(missing=missing, asked=asked)


async def look(context: Context, app: GitHubApp, *, since: int | None) -> list[Logged]:
    """Return what a sweep would ask for, without asking or remembering anything."""
    async with context.store.read() as tx:
        earlier = await sweeps.get(tx, app.app_id, NAME)
    if since is None:
        since = (earlier["reached"] or 0) - OVERLAP if earlier else 0
    since = max(since, delivery_log.horizon(context))
    until = context.clock.now() - ON_THE_WAY
    pages = delivery_log.unheard(context, app, since=since, until=until)
    return list({row.guid: row async for page in pages for row in page}.values())


async def get_missing(context: Context, app: GitHubApp, *, tell: Callable[[int], None] | None = None) -> int:
    """Ask for everything that is missing, or take it; returns for how many GitHub had an answer.

    Those it has none for are tried again after all others. Raises what it said when it wants us to wait, or has no
    answer for MOST_UNANSWERED of them.
    """
    now, answered = context.clock.now(), 0
    async with context.store.transaction() as tx:
        ours = await delivery_log.our_accounts(context, tx)
        held = delivery_log.horizon(context)
        await sweeps.forget(tx, app.app_id, before=now - FORGET, strange_before=held, accounts=ours)
        wanted = await sweeps.to_ask(tx, app.app_id, asked_before=now - PATIENCE, accounts=ours)
    if tell:
        tell(len(wanted))
    failures: list[Exception] = []
    for row in wanted:
        try:
            await _get(context, app, row)
            answered += 1
        except (GitHubRefused, RetryLater) as error:
            if isinstance(error, RetryLater) and error.after is not None:
                raise
            log.warning("no answer about a delivery", delivery=row["guid"], reason=str(error))
            failures.append(error)
            async with context.store.transaction() as tx:
                await sweeps.asked(tx, row)
        if len(failures) == MOST_UNANSWERED:
            raise failures[0]
    return answered


async def _get(context: Context, app: GitHubApp, row: Row) -> None:
    """Ask for a delivery at the pace GitHub wishes for writes, or take it: where we pull, or asking was in vain."""
    if context.settings.pulls or row["asks"] >= MOST_ASKS:
        await delivery_log.take(context, app, _logged(row))
    else:
        await context.clock.sleep(60 / context.settings.writes_per_min)
        await _ask_for(context, app, row)


async def _ask_for(context: Context, app: GitHubApp, row: Row) -> None:
    try:
        await app.as_app().post("/app/hook/deliveries/{id}/attempts", {"id": str(row["log_id"])}, data={})
    except GitHubRefused as error:
        if error.status not in delivery_log.GONE:
            raise  # we are not let in: that says nothing about the delivery
        log.warning("a delivery cannot be asked for", delivery=row["guid"], reason=str(error))
    async with context.store.transaction() as tx:
        await sweeps.asked(tx, row)
    metrics.REDELIVERIES.inc()


def _logged(row: Row) -> Logged:
    return Logged(
        id=row["log_id"],
        guid=row["guid"],
        event=row["event"],
        repository_id=row["repository_id"],
        delivered_at=row["delivered_at"],
    )
