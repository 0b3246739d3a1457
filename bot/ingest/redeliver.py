"""Tasks redeliver and pull: getting the deliveries that GitHub's log holds and that were never stored.

redeliver: GitHub never redelivers by itself, and its log goes back three days. Each sweep reads from now to where the
last complete one began. Missing deliveries are remembered and requested, once a sweep. What was requested in vain (our
address may be unreachable for GitHub) is fetched from the log itself. Deliveries for other accounts' repositories come
last, a few at a time. What GitHub fails to give is retried for as long as its log may hold it; only what has left the
log is lost.

pull: where no webhook can reach us, deliveries are fetched from the log every few seconds. It reads back to the first
page with nothing new. Entries that appear late are found every ten minutes, by a complete sweep.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from bot.core import metrics
from bot.core.errors import GitHubRefused, RetryLater
from bot.ingest import delivery_log, sweeps
from bot.ingest.delivery_log import DAY

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.context import Context
    from bot.github.client import GitHubApp
    from bot.ingest.tables import LogEntry, MissedDeliveryRow
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.ingest.redeliver")

NAME = "redeliver"
OVERLAP = 30 * 60_000  # milliseconds a sweep reads back beyond the last one: entries may appear late
IN_TRANSIT = 60_000  # milliseconds a delivery may take from GitHub's log to our inbox
MOST_REQUESTS = 2  # for one delivery, then it is fetched from the log
MOST_WAITED = 6  # requests and fetches, within an hour: then reconcile no longer waits for the delivery
MOST_UNANSWERED = 3  # deliveries in a row: then GitHub is unavailable, and each try may take half a minute
REQUEST_AGAIN = 8 * 60_000  # milliseconds until a delivery is requested again
COMPLETE_EVERY = 10 * 60_000  # milliseconds between two complete sweeps where deliveries are pulled
FORGET_AFTER = 8 * DAY  # no log goes back further


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """What one sweep found."""

    missing: int  # deliveries in the log that were never stored
    requested: int  # of these, or of earlier ones, requested or fetched now


async def sweep_logs(context: Context, _task: Task) -> None:
    """Sweep the log of each App, unless deliveries are pulled: pull sweeps it then."""
    if context.settings.pulls:
        return
    async with context.store.transaction() as tx:
        for app in delivery_log.apps(context):
            await sweeps.begin(tx, app.app_id, NAME)
    await delivery_log.for_each_app(context, sweep)


async def pull_deliveries(context: Context, _task: Task) -> None:
    """Fetch what is new in the log of each App; does nothing where deliveries come by webhook."""
    if context.settings.pulls:
        await delivery_log.for_each_app(context, _fetch_new)


async def _fetch_new(context: Context, app: GitHubApp) -> None:
    async with context.store.read() as tx:
        last = await sweeps.get(tx, app.app_id, NAME)
    if last and (last["finished_at"] or 0) > context.clock.now() - COMPLETE_EVERY:
        await _remember_newest(context, app)
        await recover_missing(context, app)
    else:
        await sweep(context, app)


async def _remember_newest(context: Context, app: GitHubApp) -> None:
    since = delivery_log.horizon(context)
    missing = delivery_log.missing(context, app, since=since, until=context.clock.now() + 1)
    async with contextlib.aclosing(missing) as pages:
        async for page in pages:
            if not await delivery_log.remember(context, app, page):
                return


async def sweep(
    context: Context,
    app: GitHubApp,
    *,
    since: int | None = None,
    on_count: Callable[[int], None] | None = None,
) -> SweepResult:
    """Find what is missing and request it; `since` (epoch milliseconds) replaces where the last sweep began.

    `on_count` is called with the number of deliveries to be requested, before the slow requests begin.
    """
    until = context.clock.now() + 1 - (0 if context.settings.pulls else IN_TRANSIT)
    async with context.store.transaction() as tx:
        earlier = await sweeps.begin(tx, app.app_id, NAME)
    due = max((earlier["reached"] or 0) - OVERLAP, delivery_log.horizon(context))
    since = due if since is None else max(since, delivery_log.horizon(context))
    missing = 0
    async for page in delivery_log.missing(context, app, since=since, until=until):
        missing += len(page)
        await delivery_log.remember(context, app, page)
    if since <= due:  # otherwise what lies before it was not read
        async with context.store.transaction() as tx:
            await sweeps.finish(tx, app.app_id, NAME, reached=until, found=missing)
    requested = await recover_missing(context, app, on_count=on_count)
    if missing or requested:
        log.warning("deliveries were missing", app=app.app_id, missing=missing, asked=requested)
    return SweepResult(missing=missing, requested=requested)


async def preview(context: Context, app: GitHubApp, *, since: int | None) -> list[LogEntry]:
    """Return what a sweep would request, without requesting or storing anything."""
    async with context.store.read() as tx:
        earlier = await sweeps.get(tx, app.app_id, NAME)
    if since is None:
        since = (earlier["reached"] or 0) - OVERLAP if earlier else 0
    since = max(since, delivery_log.horizon(context))
    until = context.clock.now() - IN_TRANSIT
    pages = delivery_log.missing(context, app, since=since, until=until)
    return list({entry["guid"]: entry async for page in pages for entry in page}.values())


async def recover_missing(
    context: Context, app: GitHubApp, *, on_count: Callable[[int], None] | None = None
) -> int:
    """Request everything that is missing, or fetch it; returns how many GitHub answered.

    Unanswered ones are retried after all others. Raises GitHub's error when it asks us to wait, or leaves
    MOST_UNANSWERED of them without an answer.
    """
    now, answered = context.clock.now(), 0
    async with context.store.transaction() as tx:
        accounts = await delivery_log.watched_accounts(context, tx)
        horizon = delivery_log.horizon(context)
        await sweeps.forget(
            tx, app.app_id, before=now - FORGET_AFTER, others_before=horizon, accounts=accounts
        )
        due = await sweeps.to_request(tx, app.app_id, asked_before=now - REQUEST_AGAIN, accounts=accounts)
    if on_count:
        on_count(len(due))
    failures: list[Exception] = []
    for row in due:
        try:
            await _recover(context, app, row)
            answered += 1
        except (GitHubRefused, RetryLater) as error:
            if isinstance(error, RetryLater) and error.after is not None:
                raise
            log.warning("no answer about a delivery", delivery=row["guid"], reason=str(error))
            failures.append(error)
            async with context.store.transaction() as tx:
                await sweeps.note_request(tx, row)
        if len(failures) == MOST_UNANSWERED:
            raise failures[0]
    return answered


async def _recover(context: Context, app: GitHubApp, row: MissedDeliveryRow) -> None:
    """Request a delivery at the rate GitHub wants for writes; fetch it where we pull or requests were in vain."""
    if context.settings.pulls or row["asks"] >= MOST_REQUESTS:
        await delivery_log.fetch(context, app, row)
    else:
        await context.clock.sleep(60 / context.settings.writes_per_min)
        await _request(context, app, row)


async def _request(context: Context, app: GitHubApp, row: MissedDeliveryRow) -> None:
    try:
        await app.as_app().post("/app/hook/deliveries/{id}/attempts", {"id": str(row["log_id"])}, data={})
    except GitHubRefused as error:
        if not error.gone:
            raise  # access is refused: that says nothing about the delivery
        log.warning("a delivery cannot be asked for", delivery=row["guid"], reason=str(error))
    async with context.store.transaction() as tx:
        await sweeps.note_request(tx, row)
    metrics.REDELIVERIES.inc()
