"""How does a delivery get in, and how does the worker take it? One table: archive and queue of raw webhooks.

A delivery is stored before it is acknowledged and marked in the transaction that wrote what it caused: a crash in
between leaves it `stored`, to be taken again.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import sqlalchemy as sa

from bot.store.tables import delivery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.store.transaction import Transaction

LARGE = 256 * 1024  # bytes of a body that is not read along with others
MOST_BYTES = 16 * 1024 * 1024  # of large bodies handled in one transaction; one more is begun below that


@dataclass(frozen=True, kw_only=True)
class Incoming:
    """A delivery as it came, with what could be read of it cheaply."""

    guid: str
    event: str
    body: bytes
    source: str = "webhook"
    action: str | None = None
    repo: str | None = None
    repository_id: int | None = None
    installation_id: int | None = None
    app_id: int | None = None
    headers: dict[str, str] | None = None  # those that matter
    foreign: bool = False  # meant for another App


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A delivery taken out of the inbox to be handled."""

    id: int
    guid: str
    event: str
    received_at: int
    attempts: int
    body: bytes


COLUMNS = {  # what is stored of a delivery, with PostgreSQL's names of the types; the body comes last
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


def values(incoming: Incoming, now: int) -> tuple[Any, ...]:
    """Return a delivery's row in the order of COLUMNS; `now` is epoch milliseconds."""
    return (
        incoming.guid,
        incoming.event,
        incoming.action,
        incoming.repo,
        incoming.repository_id,
        incoming.installation_id,
        incoming.app_id,
        incoming.source,
        now,
        now,
        "foreign" if incoming.foreign else "stored",
        msgspec.json.encode(incoming.headers).decode() if incoming.headers else None,
        incoming.body,
    )


async def put(tx: Transaction, incoming: Incoming) -> bool:
    """Store a delivery within a transaction; returns False when its GUID is known already."""
    row = dict(zip(COLUMNS, values(incoming, tx.now), strict=True))
    tx.stirred = True
    done = await tx.run(tx.insert(delivery).values(row).on_conflict_do_nothing())
    return bool(done.rowcount)


async def take(tx: Transaction, *, limit: int, only: int | None = None) -> list[Stored]:
    """Return the deliveries to be handled next; their rows are this transaction's until it ends.

    Large bodies are read one by one, as many as memory allows; the others are left to the next call.
    """
    columns = [delivery.c[name] for name in ("id", "guid", "event", "received_at", "attempts", "codec")]
    small = sa.case((sa.func.length(delivery.c.body) <= LARGE, delivery.c.body), else_=None).label("body")
    query = sa.select(*columns, small).where(delivery.c.state == "stored", delivery.c.due_at <= tx.now)
    if only is not None:
        query = query.where(delivery.c.id == only)
    query = query.order_by(delivery.c.due_at, delivery.c.id).limit(limit)
    rows = await tx.rows(query if tx.sqlite else query.with_for_update(skip_locked=True))
    await _add_large_bodies(tx, [row for row in rows if row["body"] is None])
    return [Stored(**opened(row)) for row in rows if row["body"] is not None]


async def _add_large_bodies(tx: Transaction, rows: Sequence[dict[str, Any]]) -> None:
    size = 0
    for row in rows:
        if size > MOST_BYTES:
            return
        query = sa.select(delivery.c.body).where(delivery.c.id == row["id"])
        row["body"] = (await tx.run(query)).scalar()
        size += len(row["body"])


async def settle(tx: Transaction, taken: Sequence[Stored], state: str, error: str | None = None) -> None:
    """Mark deliveries handled, ignored or parked."""
    change = {"state": state, "error": error, "attempts": delivery.c.attempts + 1}
    ids = [one.id for one in taken]
    if ids:
        await tx.run(sa.update(delivery).where(delivery.c.id.in_(ids)).values(change))


async def park(tx: Transaction, taken: Stored, error: str) -> bool:
    """Give a delivery up; returns False when it was settled meanwhile, by another process."""
    change = {"state": "parked", "error": error, "attempts": taken.attempts + 1}
    still = (delivery.c.id == taken.id, delivery.c.state == "stored")
    return bool((await tx.run(sa.update(delivery).where(*still).values(change))).rowcount)


async def postpone(tx: Transaction, taken: Stored, *, due_at: int, error: str) -> None:
    """Leave a delivery stored, to be tried again later."""
    change = {"due_at": due_at, "error": error, "attempts": taken.attempts + 1}
    still = (delivery.c.id == taken.id, delivery.c.state == "stored")
    await tx.run(sa.update(delivery).where(*still).values(change))


async def find(tx: Transaction, guid: str) -> dict[str, Any] | None:
    """Return a stored delivery by GitHub's GUID, body included."""
    row = await tx.row(sa.select(delivery).where(delivery.c.guid == guid))
    return row and opened(row)


def opened(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its body as it came, however it is kept; `codec` is gone."""
    if row.pop("codec") == "zlib":
        row["body"] = zlib.decompress(row["body"])
    return row


async def known(tx: Transaction, guids: Sequence[str]) -> set[str]:
    """Return which of these GUIDs were ever stored and are still held."""
    rows = await tx.rows(sa.select(delivery.c.guid).where(delivery.c.guid.in_(guids)))
    return {row["guid"] for row in rows}


async def again(tx: Transaction, guid: str) -> None:
    """Let the worker handle a delivery once more, as if it had just come."""
    tx.stirred = True
    change = {"state": "stored", "due_at": tx.now, "attempts": 0, "error": None}
    await tx.run(sa.update(delivery).where(delivery.c.guid == guid).values(change))
