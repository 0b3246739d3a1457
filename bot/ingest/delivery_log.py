"""GitHub's log of our webhooks: listing what was never stored, fetching bodies. Used by redeliver and pull."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import structlog
from multidict import CIMultiDict

from bot.core import metrics
from bot.core.errors import GitHubRefused, RetryLater
from bot.core.json_fields import as_int, as_time
from bot.core.links import is_enterprise_server
from bot.ingest import sweeps
from bot.ingest.delivery import as_incoming
from bot.ingest.tables import LogEntry
from bot.ingest.watched import watched
from bot.ingest.webhooks import kept_headers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.github.client import GitHubApp

log = structlog.get_logger("bot.ingest.delivery_log")

BATCH = 100  # rows compared with the inbox at once; GitHub's pages have as many
DAY = 86_400_000  # milliseconds
KEPT_DAYS, KEPT_DAYS_ENTERPRISE = 3, 7  # how far GitHub's log goes back


def apps(context: Context) -> list[GitHubApp]:
    """Return the Apps whose logs are read: one, or two where the backends have their own."""
    return (
        [context.github]
        if context.backend_github is context.github
        else [context.github, context.backend_github]
    )


async def for_each_app(context: Context, read: Callable[[Context, GitHubApp], Awaitable[object]]) -> None:
    """Read each App's log; an error in one is raised only after the other has been read."""
    failures = []
    for app in apps(context):
        try:
            await read(context, app)
        except (GitHubRefused, RetryLater) as error:
            log.warning("the delivery log cannot be swept", app=app.app_id, reason=str(error))
            failures.append(error)
    if failures:
        raise failures[0]


async def watched_accounts(context: Context, tx: Transaction) -> frozenset[str]:
    """Return the accounts, case folded, whose deliveries matter."""
    return (await watched(context, tx)).accounts


def horizon(context: Context) -> int:
    """Return how far back to read (epoch milliseconds): as far as GitHub's log and our own retention go."""
    enterprise = is_enterprise_server(context.settings.github_api_url)
    days = min(KEPT_DAYS_ENTERPRISE if enterprise else KEPT_DAYS, context.settings.raw_retention_days)
    return context.clock.now() - days * DAY


async def missing(
    context: Context, app: GitHubApp, *, since: int, until: int
) -> AsyncGenerator[list[LogEntry], None]:
    """Yield, for each page of the log between two times, what was never stored; newest first.

    Only events with handlers. The log's own `status` is ignored: only the inbox knows whether a delivery came in, and
    a failed entry may be followed by one that succeeded.
    """
    page: list[LogEntry] = []
    async with contextlib.aclosing(_entries(app)) as entries:
        async for entry in entries:
            if entry["delivered_at"] < since:
                break
            if entry["delivered_at"] < until:
                page.append(entry)
            if len(page) == BATCH:
                yield await _not_stored(context, app, page)
                page = []
    if page:
        yield await _not_stored(context, app, page)


async def fetch(context: Context, app: GitHubApp, entry: LogEntry) -> bool:
    """Store a delivery with the body kept in the log; returns False when the log no longer has it.

    Raises GitHubRefused when access is refused: that says nothing about the delivery.
    """
    try:
        found = await app.as_app().getitem("/app/hook/deliveries/{id}", {"id": str(entry["log_id"])})
    except GitHubRefused as error:
        if not error.gone:
            raise
        await _mark_lost(context, app, entry, str(error))
        return False
    request = found.get("request") or {}
    payload = request.get("payload")
    if not isinstance(payload, dict):
        await _mark_lost(context, app, entry, "the log shows no payload")
        return False
    headers = CIMultiDict(request.get("headers") or {})
    await context.intake.put(
        as_incoming(
            entry["guid"],
            entry["event"],
            payload,
            source="pull",
            app_id=app.app_id,
            headers=kept_headers(headers),
        )
    )
    return True


async def remember(context: Context, app: GitHubApp, page: list[LogEntry]) -> bool:
    """Store what is missing, until it comes in; returns whether any of it is new."""
    async with context.store.transaction() as tx:
        new = [await _add_missing(tx, app, entry) for entry in page]
    return any(new)


async def _entries(app: GitHubApp) -> AsyncGenerator[LogEntry, None]:
    async for item in app.as_app().getiter("/app/hook/deliveries{?per_page}", {"per_page": str(BATCH)}):
        yield LogEntry(
            guid=item["guid"],
            log_id=item["id"],
            event=item["event"],
            repository_id=as_int(item.get("repository_id")),
            delivered_at=as_time(item["delivered_at"]) or 0,
        )


async def _not_stored(context: Context, app: GitHubApp, page: list[LogEntry]) -> list[LogEntry]:
    handled = {entry["guid"]: entry for entry in page if entry["event"] in context.events}
    await context.intake.move_arrived()
    async with context.store.read() as tx:
        guids = await sweeps.not_stored(tx, app.app_id, list(handled))
    return [entry for guid, entry in handled.items() if guid in guids]


async def _mark_lost(context: Context, app: GitHubApp, entry: LogEntry, reason: str) -> None:
    log.error("a delivery is lost: GitHub's log no longer has it", delivery=entry["guid"], reason=reason)
    metrics.LOST.inc()
    async with context.store.transaction() as tx:
        await _add_missing(tx, app, entry, lost=True)


async def _add_missing(tx: Transaction, app: GitHubApp, entry: LogEntry, *, lost: bool = False) -> bool:
    return await sweeps.add_missing(tx, app.app_id, entry, lost=lost)
