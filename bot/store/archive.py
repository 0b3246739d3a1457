"""What becomes of deliveries once they are handled? Compressed, read again for a replay, deleted in the end.

Reading and writing are apart everywhere: what is to be changed is looked for in a snapshot that blocks nobody, then
changed in short transactions.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.store.inbox import Stored, opened
from bot.store.tables import delivery, oot_dispatch, oot_workflow_job, records, task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.store.transaction import Transaction

Row = dict[str, Any]
SETTLED = ("handled", "ignored", "foreign", "parked")
REPLAYABLE = ("handled", "ignored", "stored", "parked")
STANDING = frozenset({"repository", "installation"})  # what is, not what happened: access depends on it
STORED_COLUMNS = ("id", "guid", "event", "received_at", "attempts", "codec", "body", "state")
MOST_BYTES = 16 * 1024 * 1024  # of bodies at once, as they are kept


@dataclass(frozen=True, kw_only=True)
class Held(Stored):
    """A delivery of the archive."""

    state: str


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which deliveries are to be replayed; everything that is not given is not asked."""

    since: int | None = None  # epoch milliseconds
    event: str | None = None
    repo: str | None = None


async def page(tx: Transaction, chosen: Selection, *, after: int, limit: int) -> list[Held]:
    """Return the next deliveries to be replayed, in the order they came; `after` is the last one's id."""
    matching = sa.and_(delivery.c.id > after, *_matches(chosen))
    rows = await _bounded(tx, matching, order=(delivery.c.id,), limit=limit)
    return [Held(**opened(row)) for row in rows]


async def count(tx: Transaction, chosen: Selection) -> dict[str, int]:
    """Return how many deliveries are to be replayed, by event."""
    query = sa.select(delivery.c.event, sa.func.count().label("number")).where(*_matches(chosen))
    rows = await tx.rows(query.group_by(delivery.c.event).order_by(delivery.c.event))
    return {row["event"]: row["number"] for row in rows}


def _matches(chosen: Selection) -> list[sa.ColumnElement[bool]]:
    asked: list[sa.ColumnElement[bool]] = [delivery.c.state.in_(REPLAYABLE)]
    if chosen.since is not None:
        asked.append(delivery.c.received_at >= chosen.since)
    if chosen.event is not None:
        asked.append(delivery.c.event == chosen.event)
    if chosen.repo is not None:
        asked.append(sa.func.lower(delivery.c.repo) == chosen.repo.lower())
    return asked


async def settled_until(tx: Transaction, before: int) -> int:
    """Return the end of the time of which nothing is left to be handled, at most `before`; epoch milliseconds."""
    waiting = await oldest_unhandled(tx)
    return before if waiting is None else min(before, waiting)


async def plain(tx: Transaction, *, since: int, before: int, limit: int) -> list[Row]:
    """Return settled deliveries of a span of time that are still kept as they came, oldest first."""
    matching = sa.and_(
        delivery.c.received_at >= since,
        delivery.c.received_at < before,
        delivery.c.codec.is_(None),
        delivery.c.state.in_(SETTLED),
    )
    return await _bounded(tx, matching, order=(delivery.c.received_at, delivery.c.id), limit=limit)


async def _bounded(
    tx: Transaction, matching: sa.ColumnElement[bool], *, order: Sequence[sa.Column[Any]], limit: int
) -> list[Row]:
    """Return the first rows that match: at most `limit`, and no more than fit into memory."""
    sizes = sa.select(delivery.c.id, sa.func.length(delivery.c.body).label("size")).where(matching)
    chosen: list[int] = []
    room = MOST_BYTES
    for row in await tx.rows(sizes.order_by(*order).limit(limit)):
        room -= row["size"]
        if chosen and room < 0:
            break
        chosen.append(row["id"])
    columns = [delivery.c[name] for name in STORED_COLUMNS]
    return await tx.rows(sa.select(*columns).where(delivery.c.id.in_(chosen)).order_by(*order))


async def oldest_unhandled(tx: Transaction) -> int | None:
    """Return when the oldest delivery that is still to be handled came (epoch milliseconds)."""
    # for min() alone SQLite would go through all deliveries, in the order they came
    query = sa.select(sa.func.min(delivery.c.received_at), sa.func.count()).where(
        delivery.c.state == "stored"
    )
    at: int | None = (await tx.run(query)).scalar()
    return at


def compress(rows: Sequence[Row]) -> list[Row]:
    """Return ids and compressed bodies; takes processor time, so not in the event loop."""
    return [{"delivery_id": row["id"], "packed": zlib.compress(row["body"])} for row in rows]


async def keep_compressed(tx: Transaction, packed: Sequence[Row]) -> None:
    """Replace bodies by their compressed form."""
    change = sa.update(delivery).where(
        delivery.c.id == sa.bindparam("delivery_id"), delivery.c.codec.is_(None)
    )
    await tx.run(change.values(codec="zlib", body=sa.bindparam("packed")), list(packed))


async def old_deliveries(tx: Transaction, *, before: int, limit: int) -> list[int]:
    """Return ids of settled deliveries received before a time that nothing needs any more.

    Needed are those of unfinished dispatches, and those of open heads: a run nobody can run again is dispatched afresh.
    """
    reported = oot_workflow_job.c.dispatch_id == oot_dispatch.c.id
    running = sa.and_(reported, oot_workflow_job.c.status == "in_progress")
    asked = oot_dispatch.c.action.is_distinct_from("closed")  # nobody reports on that
    unheard = ~sa.exists().where(reported) | sa.exists().where(running)
    unfinished = oot_dispatch.c.state.in_(("pending", "held")) | (
        (oot_dispatch.c.state == "sent") & (oot_dispatch.c.level > 1) & asked & unheard
    )
    pull = records["pull_request"].c
    current = sa.exists().where(
        pull.number == oot_dispatch.c.pr_number,
        pull.head_sha == oot_dispatch.c.head_sha,
        sa.func.lower(pull.repo) == sa.func.lower(oot_dispatch.c.upstream_repo),
        pull.state == "open",
    )
    asked_for = sa.select(task.c.key).where(task.c.state.in_(("waiting", "running")))
    query = sa.select(delivery.c.id).where(
        delivery.c.received_at < before,
        delivery.c.state.in_(SETTLED),
        ~sa.exists().where(oot_dispatch.c.source_guid == delivery.c.guid, unfinished | (asked & current)),
        delivery.c.guid.not_in(asked_for),
    )
    rows = await tx.rows(query.order_by(delivery.c.received_at).limit(limit))
    return [row["id"] for row in rows]


async def delete_deliveries(tx: Transaction, ids: Sequence[int]) -> None:
    """Delete deliveries, unless one is to be handled again after all."""
    settled = delivery.c.state.in_(SETTLED)
    await tx.run(sa.delete(delivery).where(delivery.c.id.in_(ids), settled))


async def old_records(tx: Transaction, *, name: str, before: int, limit: int) -> list[tuple[Any, ...]]:
    """Return keys of records first heard of before a time; what is still open is no history yet.

    A run that backends have reported on stays as their results do: what these are worth is GitHub's word on it.
    """
    table = records[name]
    query = sa.select(*table.primary_key.columns).where(table.c.received_at < before)
    if "closed_at" in table.c:
        query = query.where(table.c.state.is_distinct_from("open"))
    if name == "workflow_run":
        job = oot_workflow_job.c
        reported = sa.exists().where(
            job.run_id == sa.cast(table.c.id, sa.Text),
            sa.func.lower(job.downstream_repo) == sa.func.lower(table.c.repo),
        )
        query = query.where(~reported)
    return [tuple(row.values()) for row in await tx.rows(query.limit(limit))]


async def delete_records(tx: Transaction, keys: Sequence[tuple[Any, ...]], *, name: str) -> None:
    """Delete records by their keys."""
    table = records[name]
    await tx.run(sa.delete(table).where(tx.among(list(table.primary_key.columns), keys)))


async def old_tasks(tx: Transaction, *, before: int, limit: int) -> list[int]:
    """Return ids of tasks done before a time; dead ones stay for a person to look at."""
    query = sa.select(task.c.id).where(task.c.state == "done", task.c.finished_at < before)
    return [row["id"] for row in await tx.rows(query.order_by(task.c.id).limit(limit))]


async def delete_tasks(tx: Transaction, ids: Sequence[int]) -> None:
    """Delete tasks that are done."""
    await tx.run(sa.delete(task).where(task.c.id.in_(ids), task.c.state == "done"))
