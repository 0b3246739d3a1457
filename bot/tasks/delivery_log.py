"""What does GitHub's log of our webhooks hold that we never stored? Read by redeliver and pull."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
from multidict import CIMultiDict

from bot import metrics
from bot.domain.allowlist_source import accounts
from bot.domain.headers import worth_keeping
from bot.domain.reading import as_int, as_time
from bot.domain.urls import is_enterprise_server
from bot.errors import GitHubRefused, RetryLater
from bot.store import allowlists, sweeps
from bot.tasks.told import as_incoming

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from bot.context import Context
    from bot.github import GitHubApp
    from bot.store import Transaction

log = structlog.get_logger("bot.tasks.delivery_log")

BATCH = 100  # rows compared with the inbox at once; GitHub's pages have as many
DAY = 86_400_000  # milliseconds
GONE = frozenset({404, 410, 422})  # what GitHub says of a row that has left its log
KEPT_DAYS, KEPT_DAYS_ENTERPRISE = 3, 7  # how far GitHub's log goes back


@dataclass(frozen=True, kw_only=True)
class Logged:
    """One attempt to deliver, as GitHub's log lists it."""

    id: int
    guid: str
    event: str
    repository_id: int | None
    delivered_at: int  # epoch milliseconds


def apps(context: Context) -> list[GitHubApp]:
    """Return the Apps whose logs are ours to read: one, or two where the backends have their own."""
    return [context.github] if context.relay is context.github else [context.github, context.relay]


async def of_each_app(context: Context, look: Callable[[Context, GitHubApp], Awaitable[object]]) -> None:
    """Look at each App's log; what stops one look, raised in the end, is no reason to leave the other's unread."""
    failures = []
    for app in apps(context):
        try:
            await look(context, app)
        except (GitHubRefused, RetryLater) as error:
            log.warning("the delivery log cannot be swept", app=app.app_id, reason=str(error))
            failures.append(error)
    if failures:
        raise failures[0]


async def our_accounts(context: Context, tx: Transaction) -> set[str]:
    """Return the accounts, case folded, whose deliveries lead to anything."""
    settings = context.settings
    return accounts(settings.upstream_repo, await allowlists.in_force(tx), settings.allowlist)


def horizon(context: Context) -> int:
    """Return how far back looking makes sense (epoch milliseconds): GitHub's log, and what we would still hold."""
    enterprise = is_enterprise_server(context.settings.github_api_url)
    days = min(KEPT_DAYS_ENTERPRISE if enterprise else KEPT_DAYS, context.settings.raw_retention_days)
    return context.clock.now() - days * DAY


async def unheard(
    context: Context, app: GitHubApp, *, since: int, until: int
) -> AsyncGenerator[list[Logged], None]:
    """Yield, for each page of the log between two times, what was never stored; newest first.

    Only events we have handlers for. The log's own `status` is not asked: whether a delivery came in is known here
    alone, and a row that says it failed may have a later one that did not.
    """
    page: list[Logged] = []
    async with contextlib.aclosing(_rows(app)) as rows:
        async for row in rows:
            if row.delivered_at < since:
                break
            if row.delivered_at < until:
                page.append(row)
            if len(page) == BATCH:
                yield await _unknown(context, app, page)
                page = []
    if page:
        yield await _unknown(context, app, page)


async def take(context: Context, app: GitHubApp, row: Logged) -> bool:
    """Store a delivery with the body the log keeps of it; returns False when the log has none to give.

    Raises GitHubRefused when we are not let in: that says nothing about the delivery.
    """
    try:
        told = await app.as_app().getitem("/app/hook/deliveries/{id}", {"id": str(row.id)})
    except GitHubRefused as error:
        if error.status not in GONE:
            raise
        await _lose(context, app, row, str(error))
        return False
    request = told.get("request") or {}
    payload = request.get("payload")
    if not isinstance(payload, dict):
        await _lose(context, app, row, "the log shows no payload")
        return False
    headers = CIMultiDict(request.get("headers") or {})
    await context.store.intake.put(
        as_incoming(
            row.guid, row.event, payload, source="pull", app_id=app.app_id, headers=worth_keeping(headers)
        )
    )
    return True


async def remember(context: Context, app: GitHubApp, page: list[Logged]) -> bool:
    """Remember what is missing until it has come in; returns whether any of it is news."""
    async with context.store.transaction() as tx:
        news = [await sweeps.miss(tx, app.app_id, **_as_missed(row)) for row in page]
    return any(news)


async def _rows(app: GitHubApp) -> AsyncGenerator[Logged, None]:
    async for item in app.as_app().getiter("/app/hook/deliveries{?per_page}", {"per_page": str(BATCH)}):
        at = as_time(item["delivered_at"]) or 0
        yield Logged(
            id=item["id"],
            guid=item["guid"],
            event=item["event"],
            repository_id=as_int(item.get("repository_id")),
            delivered_at=at,
        )


async def _unknown(context: Context, app: GitHubApp, page: list[Logged]) -> list[Logged]:
    ours = {row.guid: row for row in page if row.event in context.events}
    async with context.store.read() as tx:
        missing = await sweeps.unheard(tx, app.app_id, list(ours))
    return [row for guid, row in ours.items() if guid in missing]


async def _lose(context: Context, app: GitHubApp, row: Logged, reason: str) -> None:
    log.error("a delivery is lost: GitHub's log cannot give it", delivery=row.guid, reason=reason)
    metrics.LOST.inc()
    async with context.store.transaction() as tx:
        await sweeps.miss(tx, app.app_id, **_as_missed(row), lost=True)


def _as_missed(row: Logged) -> dict[str, Any]:
    return {
        "guid": row.guid,
        "log_id": row.id,
        "event": row.event,
        "repository_id": row.repository_id,
        "delivered_at": row.delivered_at,
    }
