"""How tasks ended: stored for many of them in one transaction, each with what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import sqlalchemy as sa
import structlog

from bot.core.errors import GiveUp, NotYet, RetryLater
from bot.db.db_errors import retry_until_stored
from bot.db.group_commit import GroupCommit
from bot.queue import tasks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.db.store import Store
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task

MOST = 100  # ends stored in one transaction
NOT_STORABLE = "the database cannot store why; see the log"

log = structlog.get_logger("bot.queue.task_ends")


@dataclass(frozen=True, kw_only=True)
class _End:
    task: Task
    outcome: Exception | None


def _without_reason(outcome: Exception | None) -> Exception | None:
    if isinstance(outcome, RetryLater):
        return RetryLater(NOT_STORABLE, after=outcome.after)
    return GiveUp(NOT_STORABLE) if outcome else None


class TaskEnds:
    """Stores the ends of one worker's tasks: those that end while a commit runs are stored by the next."""

    def __init__(self, store: Store, *, periodic: Mapping[str, float]) -> None:
        self._store = store
        self._periodic = periodic  # task kind -> seconds between runs
        self._group: GroupCommit[_End, None] = GroupCommit(
            self._write, max_items=MOST, max_size=MOST, size=lambda _end: 1
        )

    async def store(self, task: Task, outcome: Exception | None) -> None:
        """Store how a task ended: done (None), to be retried (RetryLater), or the reason it can never succeed.

        Raises StoreUnavailable when the database stays away for long.
        """
        try:
            await self._put(task, outcome)
        except (sa.exc.DBAPIError, UnicodeError):
            log.exception("why a task failed cannot be recorded", kind=task.kind, key=task.key)
            await self._put(task, _without_reason(outcome))

    async def _put(self, task: Task, outcome: Exception | None) -> None:
        ended = _End(task=task, outcome=outcome)
        await retry_until_stored(self._store.clock, partial(self._group.put, ended))

    async def drain(self) -> None:
        """Return once nothing is being stored."""
        await self._group.drain()

    async def _write(self, ends: Sequence[_End]) -> list[None]:
        await self._store.write(partial(self._write_in, ends))
        return [None] * len(ends)

    async def _write_in(self, ends: Sequence[_End], tx: Transaction) -> None:
        await self._finish(tx, [end.task for end in ends if end.outcome is None])
        for end in sorted(ends, key=lambda end: end.task.id):
            if isinstance(end.outcome, RetryLater):
                await self._retry(tx, end.task, end.outcome)
            elif end.outcome is not None:
                await tasks.give_up(tx, end.task, str(end.outcome))
            if end.task.kind in self._periodic and not isinstance(end.outcome, RetryLater):
                tx.enqueue(end.task.kind, end.task.key, delay=self._periodic[end.task.kind])
        # what made a task fail may be over for others, too, those that failed meanwhile among them
        if any(end.outcome is None and end.task.attempts > 1 for end in ends):
            await tasks.wake_after_outage(tx)

    async def _finish(self, tx: Transaction, done: Sequence[Task]) -> None:
        ended = await tasks.finish(tx, done)
        for task in done:
            if task.id not in ended:  # its lease was lost: it may have written old results
                tx.enqueue(task.kind, task.key)

    async def _retry(self, tx: Transaction, task: Task, reason: RetryLater) -> None:
        periodic = task.kind in self._periodic
        due_at = tx.now + tasks.retry_delay(task.attempts, after=reason.after, periodic=periodic)
        yields = isinstance(reason, NotYet)
        await tasks.retry(tx, task, due_at=due_at, error=str(reason), yields=yields)
