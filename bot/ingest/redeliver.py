"""Redelivery: getting the deliveries that GitHub's log of our webhooks holds and that were never stored."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa
import structlog
from multidict import CIMultiDict

from bot.core import metrics
from bot.core.errors import GitHubRefused, RetryLater
from bot.core.escaping import is_enterprise_server
from bot.core.json_fields import as_int, as_time
from bot.db.rows import select
from bot.ingest import inbox
from bot.ingest.deliveries import to_incoming
from bot.ingest.repositories import is_known, read_watched
from bot.ingest.tables import LogEntry, MissedDeliveryRow, SweepRow, delivery, missed_delivery, sweep
from bot.ingest.webhooks import kept_headers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.github.client import GitHubApp
    from bot.queue.tasks import Task

log = structlog.get_logger("bot.ingest.redeliver")

BATCH = 100  # rows compared with the inbox at once; GitHub's pages have as many
DAY = 86_400_000  # milliseconds
KEPT_DAYS, KEPT_DAYS_ENTERPRISE = 3, 7  # how far GitHub's log goes back
REDELIVER = "redeliver"
OVERLAP = 30 * 60_000  # milliseconds a sweep reads back beyond the last one: entries may appear late
IN_TRANSIT = 60_000  # milliseconds a delivery may take from GitHub's log to our inbox
MOST_REQUESTS = 2  # for one delivery, then it is fetched from the log
MOST_WAITED = 6  # requests and fetches, within an hour: then reconcile no longer waits for the delivery
MOST_UNANSWERED = 3  # deliveries in a row: then GitHub is unavailable, and each try may take half a minute
REQUEST_AGAIN = 8 * 60_000  # milliseconds until a delivery is requested again
COMPLETE_EVERY = 10 * 60_000  # milliseconds between two complete sweeps where deliveries are pulled
FORGET_AFTER = 8 * DAY  # no log goes back further
SWEPT = {  # by name of the sweep
    "redeliver": "GitHub's delivery log",
    "reconcile": "what is open and running on GitHub",
}
MISSED = missed_delivery.c
MOST_OTHERS = 60  # deliveries requested at a time for repositories of other accounts, or unknown ones


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """What one sweep found."""

    missing: int  # deliveries in the log that were never stored
    requested: int  # of these, or of earlier ones, requested or fetched now


def logged_apps(context: Context) -> list[GitHubApp]:
    """Return the Apps whose logs are read: one, or two if the backends have an App of their own."""
    return (
        [context.github]
        if context.backend_github is context.github
        else [context.github, context.backend_github]
    )


async def for_each_app(context: Context, read: Callable[[Context, GitHubApp], Awaitable[object]]) -> None:
    """Read each App's log; an error in one is raised only after the other has been read."""
    failures = []
    for app in logged_apps(context):
        try:
            await read(context, app)
        except (GitHubRefused, RetryLater) as error:
            log.warning("the delivery log cannot be swept", app=app.app_id, reason=str(error))
            failures.append(error)
    if failures:
        raise failures[0]


async def watched_accounts(context: Context, tx: Transaction) -> frozenset[str]:
    """Return the accounts, case folded, whose deliveries matter."""
    return (await read_watched(context, tx)).accounts


def oldest_readable(context: Context) -> int:
    """Return the time to read back to (epoch milliseconds): as far as GitHub's log and our own retention go."""
    enterprise = is_enterprise_server(context.settings.github_api_url)
    days = min(KEPT_DAYS_ENTERPRISE if enterprise else KEPT_DAYS, context.settings.raw_retention_days)
    return context.clock.now() - days * DAY


async def list_missing(
    context: Context, app: GitHubApp, *, since: int, until: int
) -> AsyncGenerator[list[LogEntry], None]:
    """Yield the entries of each page of the log between two times that were never stored, newest first.

    Only events with handlers. The log's own `status` is ignored: only the inbox knows whether a delivery came in, and
    a failed entry may be followed by one that succeeded.
    """
    page: list[LogEntry] = []
    async with contextlib.aclosing(_list_entries(app)) as entries:
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


async def fetch_delivery(context: Context, app: GitHubApp, entry: LogEntry) -> bool:
    """Store a delivery with the body that the log has; returns False if the log no longer has it.

    Raises GitHubRefused when access is refused: that says nothing about the delivery.
    """
    try:
        logged = await app.as_app().getitem("/app/hook/deliveries/{id}", {"id": str(entry["log_id"])})
    except GitHubRefused as error:
        if not error.gone:
            raise
        await _mark_lost(context, app, entry, str(error))
        return False
    request = logged.get("request") or {}
    payload = request.get("payload")
    if not isinstance(payload, dict):
        await _mark_lost(context, app, entry, "the log shows no payload")
        return False
    headers = CIMultiDict(request.get("headers") or {})
    await context.intake.put(
        to_incoming(
            entry["guid"],
            entry["event"],
            payload,
            source="pull",
            app_id=app.app_id,
            headers=kept_headers(headers),
        )
    )
    return True


async def store_missing(context: Context, app: GitHubApp, page: list[LogEntry]) -> bool:
    """Store which deliveries are missing until they come in; returns whether any of them is new."""
    async with context.store.transaction() as tx:
        new = [await _add_missing(tx, app, entry) for entry in page]
    return any(new)


async def sweep_logs(context: Context, _task: Task) -> None:
    """Sweep the log of each App, unless deliveries are pulled: pull sweeps it then."""
    if context.settings.pulls:
        return
    async with context.store.transaction() as tx:
        for app in logged_apps(context):
            await begin_sweep(tx, app.app_id, REDELIVER)
    await for_each_app(context, sweep_log)


async def pull_deliveries(context: Context, _task: Task) -> None:
    """Fetch what is new in the log of each App; does nothing where deliveries come by webhook."""
    if context.settings.pulls:
        await for_each_app(context, _fetch_new)


async def sweep_log(
    context: Context,
    app: GitHubApp,
    *,
    since: int | None = None,
    on_count: Callable[[int], None] | None = None,
) -> SweepResult:
    """Find missing deliveries and request them, from `since` (epoch milliseconds) or from the last sweep on.

    `on_count` is called with the number of deliveries to be requested, before the slow requests begin.
    """
    until = context.clock.now() + 1 - (0 if context.settings.pulls else IN_TRANSIT)
    async with context.store.transaction() as tx:
        earlier = await begin_sweep(tx, app.app_id, REDELIVER)
    due = max((earlier["reached"] or 0) - OVERLAP, oldest_readable(context))
    since = due if since is None else max(since, oldest_readable(context))
    missing = 0
    async for page in list_missing(context, app, since=since, until=until):
        missing += len(page)
        await store_missing(context, app, page)
    if since <= due:  # otherwise what lies before it was not read
        async with context.store.transaction() as tx:
            await finish_sweep(tx, app.app_id, REDELIVER, reached=until, found=missing)
    requested = await recover_missing(context, app, on_count=on_count)
    if missing or requested:
        log.warning("deliveries were missing", app=app.app_id, missing=missing, asked=requested)
    return SweepResult(missing=missing, requested=requested)


async def preview_sweep(context: Context, app: GitHubApp, *, since: int | None) -> list[LogEntry]:
    """Return what a sweep would request, without requesting or storing anything."""
    async with context.store.read() as tx:
        earlier = await read_sweep(tx, app.app_id, REDELIVER)
    if since is None:
        since = (earlier["reached"] or 0) - OVERLAP if earlier else 0
    since = max(since, oldest_readable(context))
    until = context.clock.now() - IN_TRANSIT
    pages = list_missing(context, app, since=since, until=until)
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
        accounts = await watched_accounts(context, tx)
        horizon = oldest_readable(context)
        await forget_missing(
            tx, app.app_id, before=now - FORGET_AFTER, others_before=horizon, accounts=accounts
        )
        due = await read_missing_to_request(
            tx, app.app_id, asked_before=now - REQUEST_AGAIN, accounts=accounts
        )
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
                await note_request(tx, row)
        if len(failures) == MOST_UNANSWERED:
            raise failures[0]
    return answered


async def begin_sweep(tx: Transaction, app_id: int, name: str) -> SweepRow:
    """Note that a sweep is being tried; returns its row."""
    insert = tx.insert(sweep).values(app_id=app_id, name=name, created_at=tx.now, tried_at=tx.now, found=0)
    update = {"tried_at": sa.func.coalesce(sweep.c.tried_at, tx.now)}
    await tx.run(insert.on_conflict_do_update(index_elements=["app_id", "name"], set_=update))
    row = await read_sweep(tx, app_id, name)
    assert row is not None
    return row


async def read_sweep(tx: Transaction, app_id: int, name: str) -> SweepRow | None:
    """Return the row of a sweep."""
    return await tx.fetch_first(select(SweepRow, sweep).where(sweep.c.app_id == app_id, sweep.c.name == name))


async def finish_sweep(tx: Transaction, app_id: int, name: str, *, reached: int, found: int = 0) -> None:
    """Record a complete sweep that looked at everything before `reached`; 0 if it reached nothing yet."""
    reached_at = reached if reached > 0 else None
    done = {"tried_at": None, "finished_at": tx.now, "reached": reached_at, "found": found}
    await tx.run(sa.update(sweep).where(sweep.c.app_id == app_id, sweep.c.name == name).values(done))


async def read_sweep_ages(
    tx: Transaction, app_ids: Sequence[int], names: Sequence[str]
) -> list[tuple[str, int, int]]:
    """Return name, App and age in milliseconds of these sweeps, since the last complete one or the first try."""
    query = select(SweepRow, sweep).where(sweep.c.app_id.in_(app_ids), sweep.c.name.in_(names))
    rows = await tx.fetch(query)
    return [
        (row["name"], row["app_id"], tx.now - (row["finished_at"] or row["created_at"]))
        for row in sorted(rows, key=lambda row: (row["name"], row["app_id"]))
    ]


async def read_unstored(tx: Transaction, app_id: int, guids: Sequence[str]) -> set[str]:
    """Return which GUIDs are neither stored nor lost."""
    lost = sa.select(MISSED.guid).where(MISSED.app_id == app_id, MISSED.guid.in_(guids), MISSED.lost)
    return set(guids) - await inbox.stored_guids(tx, guids) - set((await tx.run(lost)).scalars())


async def add_missing(tx: Transaction, app_id: int, entry: LogEntry, *, lost: bool = False) -> bool:
    """Add a delivery that was never stored; one added before stays as it is, unless it is lost now.

    Returns False when nothing has changed.
    """
    row = {**entry, "app_id": app_id, "asks": 0, "asked_at": 0, "lost": lost}
    insert = tx.insert(missed_delivery).values(row)
    if lost:
        insert = insert.on_conflict_do_update(index_elements=["app_id", "guid"], set_={"lost": True})
    done = await tx.run(insert if lost else insert.on_conflict_do_nothing())
    return done.rowcount > 0


async def forget_missing(
    tx: Transaction, app_id: int, *, before: int, others_before: int, accounts: Collection[str]
) -> None:
    """Delete the missing deliveries that are stored by now, or were first sent before a time (epoch milliseconds)."""
    stored = sa.exists().where(delivery.c.guid == MISSED.guid, delivery.c.state != "foreign")
    others = sa.and_(MISSED.delivered_at < others_before, ~is_known(MISSED.repository_id, accounts))
    old = sa.or_(MISSED.delivered_at < before, others)
    await tx.run(sa.delete(missed_delivery).where(MISSED.app_id == app_id, stored | old))


async def read_missing_to_request(
    tx: Transaction, app_id: int, *, asked_before: int, accounts: Collection[str]
) -> list[MissedDeliveryRow]:
    """Return the missing deliveries to request now: those requested longest ago first, then the oldest.

    First those for repositories of some accounts (case folded), then a few of all others, unknown repositories first:
    strangers may install a public App and have thousands sent.
    """
    query = select(MissedDeliveryRow, missed_delivery).where(
        MISSED.app_id == app_id, ~MISSED.lost, MISSED.asked_at < asked_before
    )
    order = (MISSED.asked_at, MISSED.delivered_at, MISSED.log_id)
    ours = is_known(MISSED.repository_id, accounts)
    others = query.where(~ours).order_by(is_known(MISSED.repository_id), *order).limit(MOST_OTHERS)
    return [
        *await tx.fetch(query.where(ours).order_by(*order)),
        *await tx.fetch(others),
    ]


async def note_request(tx: Transaction, missed: MissedDeliveryRow) -> None:
    """Note that a delivery was requested, whatever the answer."""
    same = (MISSED.app_id == missed["app_id"], MISSED.guid == missed["guid"])
    change = {"asks": MISSED.asks + 1, "asked_at": tx.now}
    await tx.run(sa.update(missed_delivery).where(*same).values(change))


async def read_oldest_missing(
    tx: Transaction, app_id: int, *, most_requests: int, accounts: Collection[str]
) -> int | None:
    """Return when the oldest delivery still expected was first sent (epoch milliseconds).

    Not expected: those that are lost, were requested too often in vain, or are for another account's repository.
    """
    ours = sa.or_(is_known(MISSED.repository_id, accounts), ~is_known(MISSED.repository_id))
    expected = (~MISSED.lost, MISSED.asks < most_requests, MISSED.repository_id.is_not(None), ours)
    query = sa.select(sa.func.min(MISSED.delivered_at)).where(MISSED.app_id == app_id, *expected)
    at: int | None = (await tx.run(query)).scalar()
    return at


async def _list_entries(app: GitHubApp) -> AsyncGenerator[LogEntry, None]:
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
        guids = await read_unstored(tx, app.app_id, list(handled))
    return [entry for guid, entry in handled.items() if guid in guids]


async def _mark_lost(context: Context, app: GitHubApp, entry: LogEntry, reason: str) -> None:
    log.error("a delivery is lost: GitHub's log no longer has it", delivery=entry["guid"], reason=reason)
    metrics.LOST.inc()
    async with context.store.transaction() as tx:
        await _add_missing(tx, app, entry, lost=True)


async def _add_missing(tx: Transaction, app: GitHubApp, entry: LogEntry, *, lost: bool = False) -> bool:
    return await add_missing(tx, app.app_id, entry, lost=lost)


async def _fetch_new(context: Context, app: GitHubApp) -> None:
    async with context.store.read() as tx:
        last = await read_sweep(tx, app.app_id, REDELIVER)
    if last and (last["finished_at"] or 0) > context.clock.now() - COMPLETE_EVERY:
        await _remember_newest(context, app)
        await recover_missing(context, app)
    else:
        await sweep_log(context, app)


async def _remember_newest(context: Context, app: GitHubApp) -> None:
    since = oldest_readable(context)
    missing = list_missing(context, app, since=since, until=context.clock.now() + 1)
    async with contextlib.aclosing(missing) as pages:
        async for page in pages:
            if not await store_missing(context, app, page):
                return


async def _recover(context: Context, app: GitHubApp, row: MissedDeliveryRow) -> None:
    """Request a delivery at the rate GitHub wants for writes; fetch it if we pull or if requests had no effect."""
    if context.settings.pulls or row["asks"] >= MOST_REQUESTS:
        await fetch_delivery(context, app, row)
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
        await note_request(tx, row)
    metrics.REDELIVERIES.inc()
