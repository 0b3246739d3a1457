"""Rows of dispatches that wait for a machine of their backend, and of those that keep one busy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.db.rows import select
from bot.oot.dispatch.tables import WAITING
from bot.oot.results.store.dispatches import COUNTED_BY
from bot.oot.results.tables import AWAITED, DispatchRow, oot_dispatch, oot_workflow_job

if TYPE_CHECKING:
    from bot.db.transaction import Transaction

DISPATCH, JOB = oot_dispatch.c, oot_workflow_job.c
NOT_CLOSING = DISPATCH.action.is_distinct_from("closed")
IN_ORDER = (DISPATCH.pr_number.is_(None), DISPATCH.created_at, DISPATCH.id)  # pull requests go first


async def lock_machines(tx: Transaction, backend_key: str) -> None:
    """Lock the machines of a backend until the transaction ends: dispatches to it take turns."""
    if not tx.sqlite:  # which has one writer at a time
        await tx.run(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(f"machines {backend_key}"))))


async def waiting_backends(tx: Transaction) -> list[str]:
    """Return the backends, case folded, that dispatches wait for."""
    query = sa.select(DISPATCH.backend_key).where(WAITING).distinct().order_by(DISPATCH.backend_key)
    return list((await tx.run(query)).scalars())


async def waiting(tx: Transaction, backend_key: str) -> list[DispatchRow]:
    """Return the dispatches that wait for a backend, in the order in which they will be sent."""
    query = select(DispatchRow, oot_dispatch).where(WAITING, DISPATCH.backend_key == backend_key)
    return await tx.fetch(query.order_by(*IN_ORDER))


async def end_wait(tx: Transaction, row: DispatchRow, **values: Any) -> bool:
    """Set columns of a dispatch that waits; returns False when it has been dropped."""
    ended = sa.update(oot_dispatch).where(DISPATCH.id == row["id"], WAITING).values(values)
    done = [dict(one) for one in (await tx.run(ended.returning(*COUNTED_BY))).mappings()]
    tx.note_changed("oot_dispatch", done)
    return bool(done)


async def count_before(tx: Transaction, row: DispatchRow) -> int:
    """Return how many dispatches that wait for a backend are sent before this one."""
    query = sa.select(sa.func.count()).where(
        WAITING, DISPATCH.backend_key == row["backend_key"], DISPATCH.id != row["id"]
    )
    earlier = sa.tuple_(*IN_ORDER[1:]) < sa.tuple_(
        sa.literal(row["created_at"], sa.BigInteger), sa.literal(row["id"])
    )
    if row["pr_number"] is None:
        query = query.where(DISPATCH.pr_number.is_not(None) | earlier)
    else:
        query = query.where(DISPATCH.pr_number.is_not(None), earlier)
    return int((await tx.run(query)).scalar() or 0)


async def count_running(tx: Transaction, backend_key: str, *, but: str = "", unsent: bool = False) -> int:
    """Return how many dispatches a backend has not finished; with `unsent` also those that are about to be sent."""
    begun = DISPATCH.dispatched_at.is_not(None)
    mine = (DISPATCH.backend_key == backend_key, DISPATCH.id != but, NOT_CLOSING)
    silent = sa.select(DISPATCH.id).where(*mine, AWAITED, DISPATCH.state.in_(("pending", "sent")))
    silent = silent if unsent else silent.where(begun)
    unfinished = (
        sa.select(DISPATCH.id)
        .join(oot_workflow_job, JOB.dispatch_id == DISPATCH.id)
        .where(*mine, JOB.status == "in_progress")
    )
    return len(set((await tx.run(silent.union(unfinished))).scalars()))


async def sent_since(tx: Transaction, backend_key: str, since: int) -> list[int]:
    """Return when a backend was sent its dispatches since a time (epoch milliseconds), the first one first."""
    query = sa.select(DISPATCH.dispatched_at).where(
        DISPATCH.backend_key == backend_key, DISPATCH.dispatched_at > since, NOT_CLOSING
    )
    return list((await tx.run(query.order_by(DISPATCH.dispatched_at))).scalars())
