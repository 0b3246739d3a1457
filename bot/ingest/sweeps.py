"""Progress of the periodic sweeps of GitHub, and the deliveries they found missing: tables sweep, missed_delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.db.rows import select
from bot.ingest import inbox
from bot.ingest import watched as names
from bot.ingest.tables import MissedDeliveryRow, SweepRow, delivery, missed_delivery, sweep

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.db.transaction import Transaction
    from bot.ingest.tables import LogEntry

SWEPT = {  # by name of the sweep
    "redeliver": "GitHub's delivery log",
    "reconcile": "what is open and running on GitHub",
}
MISSED = missed_delivery.c
MOST_OTHERS = 60  # deliveries requested at a time for repositories of other accounts, or unknown ones


async def begin(tx: Transaction, app_id: int, name: str) -> SweepRow:
    """Note that a sweep is being tried; returns its row."""
    insert = tx.insert(sweep).values(app_id=app_id, name=name, created_at=tx.now, tried_at=tx.now, found=0)
    update = {"tried_at": sa.func.coalesce(sweep.c.tried_at, tx.now)}
    await tx.run(insert.on_conflict_do_update(index_elements=["app_id", "name"], set_=update))
    found = await get(tx, app_id, name)
    assert found is not None
    return found


async def get(tx: Transaction, app_id: int, name: str) -> SweepRow | None:
    """Return the row of a sweep."""
    return await tx.fetch_first(select(SweepRow, sweep).where(sweep.c.app_id == app_id, sweep.c.name == name))


async def finish(tx: Transaction, app_id: int, name: str, *, reached: int, found: int = 0) -> None:
    """Note that a sweep is complete: everything before `reached` was looked at, nothing where that is no time yet."""
    reached_at = reached if reached > 0 else None
    done = {"tried_at": None, "finished_at": tx.now, "reached": reached_at, "found": found}
    await tx.run(sa.update(sweep).where(sweep.c.app_id == app_id, sweep.c.name == name).values(done))


async def ages(tx: Transaction, app_ids: Sequence[int], names: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return name, App and milliseconds since the last complete one, or since the first try, of these sweeps."""
    query = select(SweepRow, sweep).where(sweep.c.app_id.in_(app_ids), sweep.c.name.in_(names))
    rows = await tx.fetch(query)
    return [
        (row["name"], row["app_id"], tx.now - (row["finished_at"] or row["created_at"]))
        for row in sorted(rows, key=lambda row: (row["name"], row["app_id"]))
    ]


async def not_stored(tx: Transaction, app_id: int, guids: Sequence[str]) -> set[str]:
    """Return which GUIDs are neither stored nor lost."""
    lost = sa.select(MISSED.guid).where(MISSED.app_id == app_id, MISSED.guid.in_(guids), MISSED.lost)
    return set(guids) - await inbox.stored(tx, guids) - set((await tx.run(lost)).scalars())


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


async def forget(
    tx: Transaction, app_id: int, *, before: int, others_before: int, accounts: Collection[str]
) -> None:
    """Delete the missing deliveries that are stored by now, or were first sent before a time (epoch milliseconds)."""
    stored = sa.exists().where(delivery.c.guid == MISSED.guid, delivery.c.state != "foreign")
    others = sa.and_(MISSED.delivered_at < others_before, ~names.is_known(MISSED.repository_id, accounts))
    old = sa.or_(MISSED.delivered_at < before, others)
    await tx.run(sa.delete(missed_delivery).where(MISSED.app_id == app_id, stored | old))


async def to_request(
    tx: Transaction, app_id: int, *, asked_before: int, accounts: Collection[str]
) -> list[MissedDeliveryRow]:
    """Return the missing deliveries to be requested now: those whose last request is longest ago, then the oldest.

    First those for repositories of some accounts (case folded), then a few of all others, unknown repositories first:
    strangers may install a public App and have thousands sent.
    """
    query = select(MissedDeliveryRow, missed_delivery).where(
        MISSED.app_id == app_id, ~MISSED.lost, MISSED.asked_at < asked_before
    )
    order = (MISSED.asked_at, MISSED.delivered_at, MISSED.log_id)
    ours = names.is_known(MISSED.repository_id, accounts)
    others = query.where(~ours).order_by(names.is_known(MISSED.repository_id), *order).limit(MOST_OTHERS)
    return [
        *await tx.fetch(query.where(ours).order_by(*order)),
        *await tx.fetch(others),
    ]


async def note_request(tx: Transaction, missed: MissedDeliveryRow) -> None:
    """Note that a delivery was requested, whatever the answer."""
    same = (MISSED.app_id == missed["app_id"], MISSED.guid == missed["guid"])
    change = {"asks": MISSED.asks + 1, "asked_at": tx.now}
    await tx.run(sa.update(missed_delivery).where(*same).values(change))


async def oldest_missing(
    tx: Transaction, app_id: int, *, most_requests: int, accounts: Collection[str]
) -> int | None:
    """Return when the oldest delivery still expected was first sent (epoch milliseconds).

    Not expected: those that are lost, were requested too often in vain, or are for another account's repository.
    """
    ours = sa.or_(names.is_known(MISSED.repository_id, accounts), ~names.is_known(MISSED.repository_id))
    expected = (~MISSED.lost, MISSED.asks < most_requests, MISSED.repository_id.is_not(None), ours)
    query = sa.select(sa.func.min(MISSED.delivered_at)).where(MISSED.app_id == app_id, *expected)
    at: int | None = (await tx.run(query)).scalar()
    return at
