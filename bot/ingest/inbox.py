"""Inbox of deliveries: storing, claiming and marking them, and counting those that wait.

One table is archive and queue.
"""

from __future__ import annotations

import asyncio
import functools
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NotRequired

import sqlalchemy as sa

from bot.core.zstd import zstd
from bot.db import migrate
from bot.db.rows import select
from bot.db.statements import RowStatement, Statement, literal_word
from bot.ingest.tables import (
    DeliveryAction,
    DeliveryEvent,
    DeliveryHeaders,
    DeliveryRepository,
    DeliveryRow,
    DeliverySubject,
    delivery,
)
from bot.queue.tasks import task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.db.transaction import Transaction
    from bot.ingest.tables import ReceivedRow

COMPRESSION_LEVEL = 1  # 3 takes half as long again for five percent
LARGE_BODY = 256 * 1024  # bytes: compressing or reading a larger body would keep others waiting
CODEC = "zstd"

# one for all: making one takes as long as most bodies do
_compressor = zstd.ZstdCompressor(COMPRESSION_LEVEL)
PAUSE_AFTER = 1024 * 1024  # bytes of small bodies, compressed before others get a turn
MOST_BYTES = 16 * 1024 * 1024  # of large bodies in one transaction, inflated, plus the one that exceeds it
ARRIVED = {  # columns of a delivery as it arrives, with PostgreSQL's names of their types; the body comes last
    "guid": "text",
    "event": "text",
    "action": "text",
    "repo": "text",
    "repository_id": "bigint",
    "installation_id": "bigint",
    "app_id": "bigint",
    "source": "text",
    "received_at": "bigint",
    "due_at": "bigint",
    "state": "text",
    "headers": "text",
    "body": "bytea",
}
COLUMNS = ARRIVED | {"codec": "text"}  # of a new delivery
SETTLE = Statement(
    sa.update(delivery)
    .where(delivery.c.id.in_(sa.bindparam("ids", expanding=True)))
    .values(state=sa.bindparam("settled_as"), error=sa.bindparam("because"), attempts=delivery.c.attempts + 1)
)
DELIVERY_BY_GUID = RowStatement(
    select(DeliveryRow, delivery).where(delivery.c.guid == sa.bindparam("of_guid"))
)
STORED = delivery.c.state == "stored"
PARKED = delivery.c.state == "parked"
WEEK = 7 * 24 * 3_600_000  # milliseconds
FROM_GITHUB = ("webhook", "pull")


class Incoming(DeliveryEvent, DeliveryAction, DeliveryRepository, DeliverySubject, DeliveryHeaders):
    """A delivery as received, with the members that are cheap to read."""

    body: bytes
    foreign: NotRequired[bool]  # meant for another App
    ignored: NotRequired[str]  # why nothing will follow from it, for its sender


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """How many deliveries and tasks wait, and for how long. Ages are milliseconds, 0 when nothing waits."""

    deliveries: int  # stored, not handled yet
    oldest_delivery: int  # age of the oldest of them
    due: int  # tasks that are due
    longest_due: int  # how long the first of them has been due
    running: int
    dead: int  # tasks given up
    parked: int  # deliveries of the last week that could not be handled


def compress_body(body: bytes) -> bytes:
    """Return a body as it is stored, with CODEC."""
    if len(body) > LARGE_BODY:  # it would keep other threads waiting for the common compressor
        return zstd.compress(body, COMPRESSION_LEVEL)
    return _compressor.compress(body, zstd.ZstdCompressor.FLUSH_FRAME)


def decompress_body(stored: bytes, codec: str | None) -> bytes:
    """Return a body as it was received: some older ones are stored like that, without a codec."""
    if codec == CODEC:
        return zstd.decompress(stored)
    return zlib.decompress(stored) if codec == "zlib" else stored


def inflated_size(stored: bytes, codec: str | None) -> int:
    """Return the bytes of a body as it was received; as stored where it was compressed by zlib, which does not tell."""
    inflated = zstd.get_frame_info(stored).decompressed_size if codec == CODEC else None
    return len(stored) if inflated is None else inflated


def arrived_values(incoming: Incoming, now: int) -> tuple[Any, ...]:
    """Return a delivery's row in the order of ARRIVED; `now` is epoch milliseconds."""
    return (
        incoming["guid"],
        incoming["event"],
        incoming.get("action"),
        incoming.get("repo"),
        incoming.get("repository_id"),
        incoming.get("installation_id"),
        incoming.get("app_id"),
        incoming.get("source", "webhook"),
        now,
        now,
        "foreign" if incoming.get("foreign") else "stored",
        incoming.get("headers"),
        incoming["body"],
    )


def to_stored(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Reorder a row from ARRIVED to COLUMNS, its body compressed."""
    return (*row[:-1], compress_body(row[-1]), CODEC)


async def to_stored_rows(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Do the same for many rows without blocking the event loop: large bodies are compressed in a thread."""
    made, size = [], 0
    for row in rows:
        is_large = len(row[-1]) > LARGE_BODY
        made.append(await asyncio.to_thread(to_stored, row) if is_large else to_stored(row))
        size += 0 if is_large else len(row[-1])
        if size > PAUSE_AFTER:
            size = 0
            await asyncio.sleep(0)
    return made


async def store_delivery(tx: Transaction, incoming: Incoming) -> bool:
    """Store a delivery of ours within a transaction; returns False when its GUID is stored already."""
    row: dict[str, Any] = dict(zip(COLUMNS, to_stored(arrived_values(incoming, tx.now)), strict=True))
    tx.wakes_workers = True
    done = await tx.run(tx.insert(delivery).values(row).on_conflict_do_nothing())
    if not done.rowcount:  # unless only another App's copy is
        copied = (delivery.c.guid == incoming["guid"], delivery.c.state == "foreign")
        row |= {"attempts": 0, "error": None}
        done = await tx.run(sa.update(delivery).where(*copied).values(row))
    return bool(done.rowcount)


async def claim_due(tx: Transaction, *, limit: int, only: int | None = None) -> list[DeliveryRow]:
    """Return the deliveries to be handled next, their rows locked until this transaction ends.

    It takes as many large bodies as memory allows and leaves the rest to the next call.
    """
    query = _due(sqlite=tx.sqlite, single=only is not None)
    rows = await tx.fetch(query, {"now": tx.now, "most": limit, "only": only})
    await _add_large_bodies(tx, [row for row in rows if not row["body"]])
    return _fitting([row for row in rows if row["body"]])


def read_body(row: ReceivedRow) -> bytes:
    """Return the body as it was received, inflated."""
    return decompress_body(row["body"], row["codec"])


def body_size(row: ReceivedRow) -> int:
    """Return the bytes of the body as it was received, without inflating it."""
    return inflated_size(row["body"], row["codec"])


async def settle_deliveries(
    tx: Transaction, claimed: Sequence[DeliveryRow], state: str, error: str | None = None
) -> None:
    """Mark deliveries handled, ignored or parked."""
    ids = [row["id"] for row in claimed]
    if ids:
        await tx.run(SETTLE, {"ids": ids, "settled_as": state, "because": error})


async def park_delivery(tx: Transaction, claimed: DeliveryRow, error: str) -> bool:
    """Give up a delivery; returns False if another process has settled it in the meantime."""
    change = {"state": "parked", "error": error, "attempts": claimed["attempts"] + 1}
    still = (delivery.c.id == claimed["id"], delivery.c.state == "stored")
    return bool((await tx.run(sa.update(delivery).where(*still).values(change))).rowcount)


async def postpone_delivery(tx: Transaction, claimed: DeliveryRow, *, due_at: int, error: str) -> None:
    """Leave a delivery stored, to be tried again later."""
    change = {"due_at": due_at, "error": error, "attempts": claimed["attempts"] + 1}
    still = (delivery.c.id == claimed["id"], delivery.c.state == "stored")
    await tx.run(sa.update(delivery).where(*still).values(change))


async def find_delivery(tx: Transaction, guid: str) -> DeliveryRow | None:
    """Return a stored delivery by GitHub's GUID, its body as received."""
    row = await tx.fetch_first(DELIVERY_BY_GUID, {"of_guid": guid})
    if row is not None:
        row["body"], row["codec"] = decompress_body(row["body"], row["codec"]), None
    return row


async def stored_guids(tx: Transaction, guids: Sequence[str]) -> set[str]:
    """Return which of these GUIDs are stored; another App's copy of an event is not the event we were sent."""
    query = sa.select(delivery.c.guid).where(delivery.c.guid.in_(guids), delivery.c.state != "foreign")
    return set((await tx.run(query)).scalars())


async def replay_delivery(tx: Transaction, guid: str) -> DeliveryRow | None:
    """Requeue a delivery; returns its row as it was, None if it is not stored.

    Handling is idempotent: nothing is done twice. A delivery to another App is left alone.
    """
    row = await find_delivery(tx, guid)
    if row is not None and row["state"] != "foreign":
        tx.wakes_workers = True
        change = {"state": "stored", "due_at": tx.now, "attempts": 0, "error": None}
        await tx.run(sa.update(delivery).where(delivery.c.guid == guid).values(change))
    return row


async def measure_backlog(tx: Transaction) -> Backlog:
    """Count what waits; every query is answered by an index."""
    count = sa.func.count()
    deliveries, first_received = await _fetch_row(
        tx, sa.select(count, sa.func.min(delivery.c.received_at)).where(STORED)
    )
    due, first_due = await _fetch_row(
        tx,
        sa.select(count, sa.func.min(task.c.due_at)).where(
            task.c.state == "waiting", task.c.due_at <= tx.now
        ),
    )
    by_state = (
        sa.select(task.c.state, count).where(task.c.state.in_(("running", "dead"))).group_by(task.c.state)
    )
    states: dict[str, int] = dict(tuple(row) for row in await tx.run(by_state))
    (parked,) = await _fetch_row(tx, sa.select(count).where(PARKED, delivery.c.received_at >= tx.now - WEEK))
    return Backlog(
        deliveries=deliveries,
        oldest_delivery=tx.now - (first_received or tx.now),
        due=due,
        longest_due=tx.now - (first_due or tx.now),
        running=states.get("running", 0),
        dead=states.get("dead", 0),
        parked=parked,
    )


async def read_last_received(tx: Transaction) -> int | None:
    """Return when GitHub's last delivery was received (epoch milliseconds); a ping does not count."""
    query = (
        sa.select(delivery.c.received_at)
        .where(delivery.c.source.in_(FROM_GITHUB), delivery.c.event != "ping")
        .order_by(delivery.c.received_at.desc())
        .limit(1)
    )
    at: int | None = (await tx.run(query)).scalar()
    return at


async def schema_version(tx: Transaction) -> str | None:
    """Return the schema's revision, None when there are no tables."""
    return await tx.conn.run_sync(migrate.version)


async def is_schema_supported(tx: Transaction) -> bool:
    """Whether this version supports the schema of a newer one."""
    return await tx.conn.run_sync(migrate.supports)


async def check_writable(tx: Transaction) -> None:
    """Write without changing anything, to see whether the database accepts writes."""
    await tx.run(sa.text("UPDATE alembic_version SET version_num = version_num"))


def _fitting(rows: Sequence[DeliveryRow]) -> list[DeliveryRow]:
    """Return the deliveries whose contents one transaction can hold."""
    fit, total = [], 0
    for row in rows:
        size = body_size(row)
        if size > LARGE_BODY:
            if total > MOST_BYTES:
                continue
            total += size
        fit.append(row)
    return fit


@functools.cache
def _due(*, sqlite: bool, single: bool) -> RowStatement[DeliveryRow]:
    """Return the query for what is due, built once since it runs all the time; large bodies are left empty."""
    small = sa.case((sa.func.length(delivery.c.body) <= LARGE_BODY, delivery.c.body), else_=sa.literal(b""))
    query = select(DeliveryRow, delivery, body=small)
    query = query.where(delivery.c.state == literal_word("stored"), delivery.c.due_at <= sa.bindparam("now"))
    if single:
        query = query.where(delivery.c.id == sa.bindparam("only"))
    query = query.order_by(delivery.c.due_at, delivery.c.id).limit(sa.bindparam("most", type_=sa.Integer))
    return RowStatement(query if sqlite else query.with_for_update(skip_locked=True))


async def _add_large_bodies(tx: Transaction, rows: Sequence[DeliveryRow]) -> None:
    """Read bodies that are large even as they are stored, one by one."""
    size = 0
    for row in rows:
        if size > MOST_BYTES:
            return
        query = sa.select(delivery.c.body).where(delivery.c.id == row["id"])
        body: bytes = (await tx.run(query)).scalar_one()
        row["body"] = body
        size += len(body)


async def _fetch_row(tx: Transaction, query: sa.Select[*tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple((await tx.run(query)).one())
