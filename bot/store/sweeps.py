"""How far did the periodic looks at GitHub come, and which deliveries did they find missing? sweep, missed_delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.store import inbox, names
from bot.store.tables import delivery, missed_delivery, sweep

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.store.transaction import Transaction

Row = dict[str, Any]
# what each sweep looks at
LOOKS_AT = {"redeliver": "GitHub's delivery log", "reconcile": "what is open and running on GitHub"}
MISSED = missed_delivery.c
MOST_STRANGE = 60  # deliveries asked for at a time about repositories of other accounts, or unknown ones


async def begin(tx: Transaction, app_id: int, name: str) -> Row:
    """Note that a sweep is tried; returns what is known of the earlier ones."""
    fresh = {
        "app_id": app_id,
        "name": name,
        "created_at": tx.now,
        "tried_at": tx.now,
        "found": 0,
    }
    insert = tx.insert(sweep).values(fresh)
    still = {"tried_at": sa.func.coalesce(sweep.c.tried_at, tx.now)}
    await tx.run(insert.on_conflict_do_update(index_elements=["app_id", "name"], set_=still))
    found = await get(tx, app_id, name)
    assert found is not None
    return found


async def get(tx: Transaction, app_id: int, name: str) -> Row | None:
    """Return what is known of a sweep."""
    return await tx.row(sa.select(sweep).where(sweep.c.app_id == app_id, sweep.c.name == name))


async def finish(tx: Transaction, app_id: int, name: str, *, reached: int, found: int = 0) -> None:
    """Note that a sweep came to its end, having looked at everything before `reached`."""
    done = {"tried_at": None, "finished_at": tx.now, "reached": reached, "found": found}
    await tx.run(sa.update(sweep).where(sweep.c.app_id == app_id, sweep.c.name == name).values(done))


async def ages(tx: Transaction, app_ids: Sequence[int], names: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return name, App and milliseconds since the last complete one, or since the first try, of these sweeps."""
    rows = await tx.rows(sa.select(sweep).where(sweep.c.app_id.in_(app_ids), sweep.c.name.in_(names)))
    return [
        (row["name"], row["app_id"], tx.now - (row["finished_at"] or row["created_at"]))
        for row in sorted(rows, key=lambda row: (row["name"], row["app_id"]))
    ]


async def unheard(tx: Transaction, app_id: int, guids: Sequence[str]) -> set[str]:
    """Return which GUIDs were never stored and are not given up either."""
    lost = sa.select(MISSED.guid).where(MISSED.app_id == app_id, MISSED.guid.in_(guids), MISSED.lost)
    given_up = {row["guid"] for row in await tx.rows(lost)}
    return set(guids) - await inbox.known(tx, guids) - given_up


async def miss(
    tx: Transaction,
    app_id: int,
    *,
    guid: str,
    log_id: int,
    event: str,
    repository_id: int | None,
    delivered_at: int,
    lost: bool = False,
) -> bool:
    """Remember a delivery that was never stored; one remembered already stays as it is, unless it is lost now.

    Returns False where nothing has changed.
    """
    values = {
        "app_id": app_id,
        "guid": guid,
        "log_id": log_id,
        "event": event,
        "repository_id": repository_id,
        "delivered_at": delivered_at,
        "asks": 0,
        "asked_at": 0,
        "lost": lost,
    }
    insert = tx.insert(missed_delivery).values(values)
    if lost:
        insert = insert.on_conflict_do_update(index_elements=["app_id", "guid"], set_={"lost": True})
    done = await tx.run(insert if lost else insert.on_conflict_do_nothing())
    return done.rowcount > 0


async def forget(
    tx: Transaction, app_id: int, *, before: int, strange_before: int, accounts: Collection[str]
) -> None:
    """Drop the missing deliveries that came in, or that were first sent before a time (epoch milliseconds)."""
    came = sa.exists().where(delivery.c.guid == MISSED.guid)
    strange = sa.and_(MISSED.delivered_at < strange_before, ~names.known(MISSED.repository_id, accounts))
    old = sa.or_(MISSED.delivered_at < before, strange)
    await tx.run(sa.delete(missed_delivery).where(MISSED.app_id == app_id, came | old))


async def to_ask(tx: Transaction, app_id: int, *, asked_before: int, accounts: Collection[str]) -> list[Row]:
    """Return the missing deliveries that are to be asked for now: the longest not asked for, of those the oldest.

    First what is about repositories of some accounts (case folded), then a few of all others, beginning with those
    nothing was ever heard of: anybody may install a public App, and have thousands sent.
    """
    query = sa.select(missed_delivery).where(
        MISSED.app_id == app_id, ~MISSED.lost, MISSED.asked_at < asked_before
    )
    order = (MISSED.asked_at, MISSED.delivered_at, MISSED.log_id)
    ours = names.known(MISSED.repository_id, accounts)
    others = query.where(~ours).order_by(names.known(MISSED.repository_id), *order).limit(MOST_STRANGE)
    return [*await tx.rows(query.where(ours).order_by(*order)), *await tx.rows(others)]


async def asked(tx: Transaction, missed: Row) -> None:
    """Note that a delivery was asked for, whatever the answer."""
    same = (MISSED.app_id == missed["app_id"], MISSED.guid == missed["guid"])
    change = {"asks": MISSED.asks + 1, "asked_at": tx.now}
    await tx.run(sa.update(missed_delivery).where(*same).values(change))


async def oldest_missing(
    tx: Transaction, app_id: int, *, most_asks: int, accounts: Collection[str]
) -> int | None:
    """Return when the oldest delivery still waited for was first sent (epoch milliseconds).

    One that is lost, or was asked for so often in vain, is not; nor is one about another account's repository.
    """
    ours = sa.or_(names.known(MISSED.repository_id, accounts), ~names.known(MISSED.repository_id))
    waited_for = (~MISSED.lost, MISSED.asks < most_asks, MISSED.repository_id.is_not(None), ours)
    query = sa.select(sa.func.min(MISSED.delivered_at)).where(MISSED.app_id == app_id, *waited_for)
    at: int | None = (await tx.run(query)).scalar()
    return at
