"""Machines of a backend: dispatches beyond `max_parallel` and `max_per_day` wait; the task `machines` sends them.

Pull requests go first, then pushes, each in the order of their events. A newer head of a pull request drops what waits
for the older one, as it drops all that is unsent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bot.core import text
from bot.core.json_fields import iso_time
from bot.oot.allowlist import rows as allowlists
from bot.oot.dispatch import rows_machines
from bot.oot.results.store import dispatches
from bot.oot.results.task_keys import request_publish

if TYPE_CHECKING:
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.oot.allowlist.allowlist import Entry
    from bot.oot.results.tables import DispatchRow
    from bot.queue.tasks import Task

DAY = 86_400_000  # milliseconds
WAITS_MOST = 7 * DAY
WAITED_TOO_LONG = "it has waited 7 days for a machine"


class Room(NamedTuple):
    """How many dispatches a backend may be sent now, and why no more."""

    free: int
    why: str


async def read_room(tx: Transaction, entry: Entry, *, but: str = "", unsent: bool = False) -> Room:
    """Return what an entry's limits leave; `but` is a dispatch that does not count.

    With `unsent` dispatches that are about to be sent count as running.
    """
    rooms = []
    if entry.max_parallel is not None:
        running = await rows_machines.count_running(tx, entry.key, but=but, unsent=unsent)
        why = f"{running} of at most {text.plural(entry.max_parallel, 'run')} at once"
        rooms.append(Room(entry.max_parallel - running, why))
    if entry.max_per_day is not None:
        sent = await rows_machines.sent_since(tx, entry.key, tx.now - DAY)
        why = f"{len(sent)} of at most {entry.max_per_day} dispatches sent within 24 hours"
        if len(sent) >= entry.max_per_day:
            why += f": it goes on at {iso_time(sent[-entry.max_per_day] + DAY)}"
        rooms.append(Room(entry.max_per_day - len(sent), why))
    return min(rooms, default=Room(1, ""))


async def hold_back(tx: Transaction, dispatch: DispatchRow, entry: Entry) -> bool:
    """Have a dispatch wait, if its backend has no machine for it; returns whether it has to."""
    sent_before = dispatch["dispatched_at"] is not None  # and has perhaps arrived
    if not entry.limited or sent_before or dispatch["action"] == "closed":
        return False
    await rows_machines.lock_machines(tx, entry.key)
    room = await read_room(tx, entry, but=dispatch["id"])
    if room.free > 0 and not await rows_machines.count_before(tx, dispatch):
        return False
    if not await dispatches.settle(tx, dispatch["id"], state="waiting", error=room.why):
        return False  # it was dropped meanwhile, which the attempt to send it finds
    request_publish(tx, dispatch["upstream_repo"], dispatch["pr_number"])
    return True


def patience(entry: Entry) -> int:
    """Return the milliseconds that an entry's dispatches may wait for machines."""
    return WAITS_MOST if entry.limited else 0


async def release_waiting(context: Context, _task: Task) -> None:
    """Have the next dispatches sent to every backend that has machines again, or no limits any more."""
    async with context.store.read() as tx:
        backends = await rows_machines.waiting_backends(tx)
    for backend_key in backends:
        async with context.store.transaction() as tx:
            await _release(tx, backend_key)


async def describe_wait(tx: Transaction, row: DispatchRow) -> str:
    """Return why a dispatch waits, and behind how many others."""
    before = await rows_machines.count_before(tx, row)
    return f"waiting for a machine: {before} before you ({row['error']})"


async def _release(tx: Transaction, backend_key: str) -> None:
    await rows_machines.lock_machines(tx, backend_key)
    allowlist = await allowlists.in_force(tx)
    entry = allowlist.find(backend_key) if allowlist else None
    waiting = await rows_machines.waiting(tx, backend_key)
    free = len(waiting)
    if entry is not None and entry.limited:
        free = min(free, max(0, (await read_room(tx, entry, unsent=True)).free))
    limited = entry is not None and entry.limited
    for row in waiting[:free]:
        # without limits START_TIMEOUT counts from now; with them its time says whose turn it is
        begun_at = row["created_at"] if limited else tx.now
        if await rows_machines.end_wait(tx, row, state="pending", created_at=begun_at, error=None):
            tx.enqueue("dispatch", row["id"])
            request_publish(tx, row["upstream_repo"], row["pr_number"])
    for row in waiting[free:]:
        if tx.now - row["created_at"] > WAITS_MOST:
            await rows_machines.end_wait(tx, row, state="superseded", error=WAITED_TOO_LONG)
            request_publish(tx, row["upstream_repo"], row["pr_number"])
