"""Retention: which deliveries, records and tasks are deleted and when, and which are read for a replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
import structlog

from bot.core.feature import load_each
from bot.db.rows import select
from bot.ingest import redeliver
from bot.ingest.inbox import MOST_BYTES, body_size
from bot.ingest.repositories import is_known, read_watched
from bot.ingest.tables import FROM_OTHERS, TYPES, DeliveryRow, delivery, records
from bot.queue import sums
from bot.queue.tasks import task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

T = TypeVar("T")
Retained = Callable[[sa.Table], sa.ColumnElement[bool] | None]  # which rows of a table are still needed
ENDED = ("handled", "ignored", "foreign", "parked")
REPLAYABLE = ("handled", "ignored", "stored", "parked")
SUMS_KEPT = 3_600_000  # milliseconds
KEPT_TYPES = frozenset({"repository", "installation"})  # never deleted: access depends on these records
log = structlog.get_logger("bot.ingest.retention")

DAY = 86_400_000  # milliseconds
MEGABYTE = 1024 * 1024
BATCH = 200  # rows changed in one transaction
PAUSE = 0.02  # seconds between two batches: lets other writers in
TASKS_KEPT = 7 * DAY  # once they are done


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which deliveries are replayed; a field that is None restricts nothing."""

    since: int | None = None  # epoch milliseconds
    event: str | None = None
    repo: str | None = None


async def read_replay_page(
    tx: Transaction, chosen: Selection, *, after: int, limit: int
) -> list[DeliveryRow]:
    """Read the next deliveries to replay, in the order received; `after` is the id of the last one seen.

    At most `limit`, and no more than MOST_BYTES of bodies, inflated, plus the one that exceeds it.
    """
    matching = (delivery.c.id > after, *_matches(chosen))
    sizes = sa.select(delivery.c.id, sa.func.length(delivery.c.body)).where(*matching)
    listed = [tuple(row) for row in await tx.run(sizes.order_by(delivery.c.id).limit(limit))]
    ids = [identifier for identifier, _ in _until_full(listed, lambda row: int(row[1]))]
    query = select(DeliveryRow, delivery).where(delivery.c.id.in_(ids)).order_by(delivery.c.id)
    return _until_full(await tx.fetch(query), body_size)


async def count_replayed(tx: Transaction, chosen: Selection) -> dict[str, int]:
    """Count the deliveries to replay, by event."""
    query = sa.select(delivery.c.event, sa.func.count()).where(*_matches(chosen))
    rows = await tx.run(query.group_by(delivery.c.event).order_by(delivery.c.event))
    return {event: int(number) for event, number in rows}


async def oldest_unhandled(tx: Transaction) -> int | None:
    """Return when the oldest delivery still to be handled was received (epoch milliseconds)."""
    # for min() alone SQLite would scan all deliveries in the order received
    query = sa.select(sa.func.min(delivery.c.received_at), sa.func.count()).where(
        delivery.c.state == "stored"
    )
    at: int | None = (await tx.run(query)).scalar()
    return at


async def old_deliveries(
    tx: Transaction, *, before: int, limit: int, retained: Sequence[Retained] = ()
) -> list[int]:
    """Return the ids of settled deliveries that were received before a time and are no longer needed."""
    pending = sa.select(task.c.key).where(task.c.state.in_(("waiting", "running")))
    query = sa.select(delivery.c.id).where(
        delivery.c.received_at < before,
        delivery.c.state.in_(ENDED),
        *_not_retained(delivery, retained),
        delivery.c.guid.not_in(pending),
    )
    return list((await tx.run(query.order_by(delivery.c.received_at).limit(limit))).scalars())


async def over_quota(tx: Transaction, accounts: Collection[str], *, most: int) -> int:
    """Return the id up to which settled deliveries of other accounts exceed so many bytes, the newest counted first.

    0 where they do not.
    """
    newest_first = sa.func.sum(sa.func.length(delivery.c.body)).over(order_by=delivery.c.id.desc())
    sizes = (
        sa.select(delivery.c.id, newest_first.label("total")).where(*_others_conditions(accounts)).subquery()
    )
    return (await tx.run(sa.select(sa.func.max(sizes.c.id)).where(sizes.c.total > most))).scalar() or 0


async def deliveries_of_others(
    tx: Transaction,
    accounts: Collection[str],
    *,
    up_to: int,
    limit: int,
    retained: Sequence[Retained] = (),
) -> list[int]:
    """Return the ids of settled deliveries of other accounts that are no longer needed, oldest first."""
    query = sa.select(delivery.c.id).where(
        delivery.c.id <= up_to, *_others_conditions(accounts), *_not_retained(delivery, retained)
    )
    return list((await tx.run(query.order_by(delivery.c.id).limit(limit))).scalars())


async def delete_deliveries(tx: Transaction, ids: Sequence[int]) -> None:
    """Delete deliveries, except those that were requeued in the meantime."""
    settled = delivery.c.state.in_(ENDED)
    await tx.run(sa.delete(delivery).where(delivery.c.id.in_(ids), settled))


async def old_records(
    tx: Transaction, *, name: str, before: int, limit: int, retained: Sequence[Retained] = ()
) -> list[tuple[Any, ...]]:
    """Return keys of records first received before a time, except of what is still open."""
    table = records[name]
    query = sa.select(*table.primary_key.columns).where(table.c.received_at < before)
    if "closed_at" in table.c:
        query = query.where(table.c.state.is_distinct_from("open"))
    query = query.where(*_not_retained(table, retained))
    return [tuple(row) for row in await tx.run(query.limit(limit))]


async def delete_records(tx: Transaction, keys: Sequence[tuple[Any, ...]], *, name: str) -> None:
    """Delete records by their keys."""
    table = records[name]
    await tx.run(sa.delete(table).where(tx.among(list(table.primary_key.columns), keys)))


async def old_tasks(tx: Transaction, *, before: int, limit: int) -> list[int]:
    """Return the ids of tasks that were done before a time; dead ones stay for the operator to look at.

    Tasks of daily sums run several times a second and tell nothing: they go after an hour.
    """
    of_sums = sa.and_(task.c.kind == sums.KIND, task.c.finished_at < tx.now - SUMS_KEPT)
    query = sa.select(task.c.id).where(task.c.state == "done", sa.or_(task.c.finished_at < before, of_sums))
    return list((await tx.run(query.order_by(task.c.id).limit(limit))).scalars())


async def delete_tasks(tx: Transaction, ids: Sequence[int]) -> None:
    """Delete tasks that are done."""
    await tx.run(sa.delete(task).where(task.c.id.in_(ids), task.c.state == "done"))


async def prune_expired(context: Context, _task: Task) -> None:
    """Delete whatever is due."""
    deleted = {
        "deliveries": await _prune_deliveries(context),
        "deliveries_of_others": await _prune_others_deliveries(context),
        "tasks": await _prune_tasks(context),
    }
    for prune in load_each(context.features, "prune"):
        deleted |= await prune(context)
    async with context.store.transaction() as tx:
        last = await redeliver.begin_sweep(tx, 0, "records")
        due = (last["finished_at"] or 0) <= tx.now - DAY
    if due:  # once a day: finding old records reads every row
        deleted["records"] = await _prune_records(context)
        async with context.store.transaction() as tx:
            await redeliver.finish_sweep(tx, 0, "records", reached=tx.now, found=deleted["records"])
    if any(deleted.values()):
        log.info("pruned", **deleted)


async def delete_in_batches(
    context: Context,
    find: Callable[[Transaction], Awaitable[Sequence[T]]],
    delete: Callable[[Transaction, Sequence[T]], Awaitable[None]],
) -> int:
    """Find and delete until nothing is left; returns how many were deleted."""
    deleted = 0
    while True:
        async with context.store.read() as tx:
            batch = await find(tx)
        if not batch:
            return deleted
        async with context.store.transaction() as tx:
            await delete(tx, batch)
        deleted += len(batch)
        await context.clock.sleep(PAUSE)


async def delete_rows(context: Context, table: sa.Table, old: sa.ColumnElement[bool]) -> int:
    """Delete old rows of a table in batches, unless they have changed in the meantime; returns how many."""
    keys = list(table.primary_key.columns)

    async def find(tx: Transaction) -> list[tuple[object, ...]]:
        return [tuple(row) for row in (await tx.run(sa.select(*keys).where(old).limit(BATCH))).all()]

    async def delete(tx: Transaction, batch: Sequence[tuple[object, ...]]) -> None:
        await tx.run(sa.delete(table).where(tx.among(keys, batch), old))

    return await delete_in_batches(context, find, delete)


def _until_full(rows: Sequence[T], size: Callable[[T], int]) -> list[T]:
    """Return the first rows that fit into MOST_BYTES, and the one that exceeds it."""
    taken, total = [], 0
    for row in rows:
        if total > MOST_BYTES:
            break
        taken.append(row)
        total += size(row)
    return taken


def _matches(chosen: Selection) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = [delivery.c.state.in_(REPLAYABLE)]
    if chosen.since is not None:
        conditions.append(delivery.c.received_at >= chosen.since)
    if chosen.event is not None:
        conditions.append(delivery.c.event == chosen.event)
    if chosen.repo is not None:
        conditions.append(sa.func.lower(delivery.c.repo) == chosen.repo.lower())
    return conditions


def _others_conditions(accounts: Collection[str]) -> list[sa.ColumnElement[bool]]:
    """Return the conditions for settled deliveries from repositories of none of these accounts (case folded).

    This includes deliveries of other senders about projects that are mapped to no repository.
    """
    known = is_known(delivery.c.repository_id, accounts)
    return [
        delivery.c.state.in_(ENDED),
        sa.or_(
            sa.and_(delivery.c.repository_id.is_not(None), ~known),
            sa.and_(FROM_OTHERS, delivery.c.state == "foreign"),
        ),
    ]


def _not_retained(table: sa.Table, retained: Sequence[Retained]) -> list[sa.ColumnElement[bool]]:
    needed = [condition for each in retained if (condition := each(table)) is not None]
    return [~condition for condition in needed]


async def _prune_deliveries(context: Context) -> int:
    before = context.clock.now() - context.settings.raw_retention_days * DAY
    find = partial(old_deliveries, before=before, limit=BATCH, retained=_retained_rows(context))
    return await delete_in_batches(context, find, delete_deliveries)


async def _prune_others_deliveries(context: Context) -> int:
    """Delete the oldest deliveries of accounts that are not watched: a public App may be sent any number."""
    most = context.settings.others_raw_mb * MEGABYTE
    async with context.store.read() as tx:
        accounts = (await read_watched(context, tx)).accounts
        up_to = await over_quota(tx, accounts, most=most)
    if not up_to:
        return 0
    retained = _retained_rows(context)
    find = partial(deliveries_of_others, accounts=accounts, up_to=up_to, limit=BATCH, retained=retained)
    return await delete_in_batches(context, find, delete_deliveries)


async def _prune_tasks(context: Context) -> int:
    find = partial(old_tasks, before=context.clock.now() - TASKS_KEPT, limit=BATCH)
    return await delete_in_batches(context, find, delete_tasks)


async def _prune_records(context: Context) -> int:
    before = context.clock.now() - context.settings.record_retention_days * DAY
    deleted, retained = 0, _retained_rows(context)
    for name in sorted(TYPES.keys() - KEPT_TYPES):
        find = partial(old_records, name=name, before=before, limit=BATCH, retained=retained)
        deleted += await delete_in_batches(context, find, partial(delete_records, name=name))
    return deleted


def _retained_rows(context: Context) -> list[Retained]:
    return list(load_each(context.features, "retained"))
