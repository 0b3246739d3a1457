"""Dispatches beyond a backend's `max_parallel` and `max_per_day` wait; the task `machines` sends them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from bot.core import text
from bot.core.json_fields import iso_time
from bot.db.rows import select
from bot.oot.allowlist import versions as allowlists
from bot.oot.dispatch.rows import WAITING
from bot.oot.results import dispatches
from bot.oot.results.dispatches import COUNTED_BY
from bot.oot.results.tables import AWAITED, DispatchRow, oot_dispatch, oot_workflow_job
from bot.oot.results.task_keys import request_publish

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.oot.allowlist.entry import Entry
    from bot.queue.tasks import Task

DISPATCH, JOB = oot_dispatch.c, oot_workflow_job.c
NOT_CLOSING = DISPATCH.action.is_distinct_from("closed")
IN_ORDER = (DISPATCH.pr_number.is_(None), DISPATCH.created_at, DISPATCH.id)  # pull requests go first
DAY = 86_400_000  # milliseconds
WAITS_MOST = 7 * DAY
WAITED_TOO_LONG = "it has waited 7 days for a machine"


class FreeMachines(NamedTuple):
    """How many dispatches a backend may be sent now, and what limits them."""

    free: int
    why: str


async def lock_machines(tx: Transaction, backend_key: str) -> None:
    """Lock the machines of a backend until the transaction ends: dispatches to it take turns."""
    if not tx.sqlite:  # which has one writer at a time
        await tx.run(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(f"machines {backend_key}"))))


async def waiting_backends(tx: Transaction) -> list[str]:
    """Return the backends (case folded) that dispatches wait for."""
    query = sa.select(DISPATCH.backend_key).where(WAITING).distinct().order_by(DISPATCH.backend_key)
    return list((await tx.run(query)).scalars())


async def read_waiting(tx: Transaction, backend_key: str) -> list[DispatchRow]:
    """Return the dispatches that wait for a backend, in the order in which they will be sent."""
    query = select(DispatchRow, oot_dispatch).where(WAITING, DISPATCH.backend_key == backend_key)
    return await tx.fetch(query.order_by(*IN_ORDER))


async def end_wait(tx: Transaction, row: DispatchRow, **values: Any) -> bool:
    """Set columns of a waiting dispatch; returns False if it has been dropped."""
    ended = sa.update(oot_dispatch).where(DISPATCH.id == row["id"], WAITING).values(values)
    done = [dict(changed) for changed in (await tx.run(ended.returning(*COUNTED_BY))).mappings()]
    tx.note_changed("oot_dispatch", done)
    return bool(done)


async def count_before(tx: Transaction, row: DispatchRow) -> int:
    """Count the dispatches waiting for a backend that will be sent before this one."""
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
    """Count a backend's unfinished dispatches; with `unsent`, also those about to be sent."""
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


async def read_sent_since(tx: Transaction, backend_key: str, since: int) -> list[int]:
    """Return when a backend was sent dispatches since a time (epoch milliseconds), oldest first."""
    query = sa.select(DISPATCH.dispatched_at).where(
        DISPATCH.backend_key == backend_key, DISPATCH.dispatched_at > since, NOT_CLOSING
    )
    return list((await tx.run(query.order_by(DISPATCH.dispatched_at))).scalars())


async def read_free_machines(
    tx: Transaction, entry: Entry, *, but: str = "", unsent: bool = False
) -> FreeMachines:
    """Return what an entry's limits leave free; the dispatch `but` does not count.

    With `unsent`, dispatches about to be sent count as running.
    """
    rooms = []
    if entry.max_parallel is not None:
        running = await count_running(tx, entry.key, but=but, unsent=unsent)
        why = f"{running} of at most {text.plural(entry.max_parallel, 'run')} at once"
        rooms.append(FreeMachines(entry.max_parallel - running, why))
    if entry.max_per_day is not None:
        sent = await read_sent_since(tx, entry.key, tx.now - DAY)
        why = f"{len(sent)} of at most {entry.max_per_day} dispatches sent within 24 hours"
        if len(sent) >= entry.max_per_day:
            why += f": it goes on at {iso_time(sent[-entry.max_per_day] + DAY)}"
        rooms.append(FreeMachines(entry.max_per_day - len(sent), why))
    return min(rooms, default=FreeMachines(1, ""))


async def hold_back(tx: Transaction, dispatch: DispatchRow, entry: Entry) -> bool:
    """Make a dispatch wait if its backend has no machine for it; returns whether it waits."""
    sent_before = dispatch["dispatched_at"] is not None  # and has perhaps arrived
    if not entry.limited or sent_before or dispatch["action"] == "closed":
        return False
    await lock_machines(tx, entry.key)
    room = await read_free_machines(tx, entry, but=dispatch["id"])
    if room.free > 0 and not await count_before(tx, dispatch):
        return False
    if not await dispatches.settle_dispatch(tx, dispatch["id"], state="waiting", error=room.why):
        return False  # it was dropped meanwhile, which the attempt to send it finds
    request_publish(tx, dispatch["upstream_repo"], dispatch["pr_number"])
    return True


def longest_wait(entry: Entry) -> int:
    """Return how long an entry's dispatches may wait for machines, in milliseconds."""
    return WAITS_MOST if entry.limited else 0


async def release_waiting(context: Context, _task: Task) -> None:
    """Release the next dispatches to every backend that has machines again, or no longer any limits."""
    async with context.store.read() as tx:
        backends = await waiting_backends(tx)
    for backend_key in backends:
        async with context.store.transaction() as tx:
            await _release(tx, backend_key)


async def describe_wait(tx: Transaction, row: DispatchRow) -> str:
    """Say why a dispatch waits, and behind how many others."""
    before = await count_before(tx, row)
    return f"waiting for a machine: {before} before you ({row['error']})"


async def _release(tx: Transaction, backend_key: str) -> None:
    await lock_machines(tx, backend_key)
    allowlist = await allowlists.read_in_force(tx)
    entry = allowlist.find(backend_key) if allowlist else None
    waiting = await read_waiting(tx, backend_key)
    free = len(waiting)
    if entry is not None and entry.limited:
        free = min(free, max(0, (await read_free_machines(tx, entry, unsent=True)).free))
    limited = entry is not None and entry.limited
    for row in waiting[:free]:
        # without limits START_TIMEOUT counts from now; with them its time says whose turn it is
        begun_at = row["created_at"] if limited else tx.now
        if await end_wait(tx, row, state="pending", created_at=begun_at, error=None):
            tx.enqueue("dispatch", row["id"])
            request_publish(tx, row["upstream_repo"], row["pr_number"])
    for row in waiting[free:]:
        if tx.now - row["created_at"] > WAITS_MOST:
            await end_wait(tx, row, state="superseded", error=WAITED_TOO_LONG)
            request_publish(tx, row["upstream_repo"], row["pr_number"])
