"""The worker: has deliveries applied, runs tasks, retries what fails, stops gracefully.

Whatever a task raises is logged, kept with its row, and tried again later. Every error is caught here, for deliveries
in the applier, and in the web middleware: nowhere else. How tasks ended is stored for many of them in one transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import sqlalchemy as sa
import structlog

from bot.core import log_output, metrics, traces
from bot.core.errors import GitHubRefused, GiveUp, NotYet, RetryLater, StoreUnavailable
from bot.core.feature import load_each
from bot.db import postgres
from bot.db.db_errors import retry_until_stored
from bot.db.group_commit import GroupCommit
from bot.db.store import LOCK_TIMEOUT
from bot.github import responses
from bot.ingest.deliveries import BATCH, Applier
from bot.queue import tasks
from bot.queue.tasks import Task

if TYPE_CHECKING:
    from gidgethub.routing import Router

    from bot.context import Context
    from bot.db.store import Store
    from bot.db.transaction import Transaction

# returns how many seconds its key need not run again, for all it knows
TaskFunction = Callable[["Context", Task], Awaitable[float | None]]

SLOTS = 20  # tasks running at once
# of them for tasks of the background, which take minutes: the others are for what people wait for
BACKGROUND_SLOTS = 4
POLL = 1.0  # seconds between polls of the database without a notification
TOGETHER = 0.05  # seconds between polls under steady notifications, so that some work is done together
LOOKS_EVERY = 0.1  # seconds, at least, between looks at what is due while deliveries arrive without end
DATABASE_AWAY = "the database cannot be used; trying again every second"
HEARTBEAT = 5.0  # seconds between renewals of leases: five may fail before one expires
GRACE = 7.0  # seconds for running tasks on shutdown
CANCELLED_WITHIN = 2.0  # seconds for those cancelled then

log = structlog.get_logger("bot.worker")
MOST_TASK_ENDS = 100  # ends stored in one transaction
NOT_STORABLE = "the database cannot store why; see the log"


@dataclass(frozen=True, kw_only=True)
class _TaskEnd:
    task: Task
    outcome: Exception | None


class Worker:
    """Handles what the inbox holds and runs what the queue holds."""

    def __init__(
        self,
        context: Context,
        *,
        router: Router,
        kinds: Mapping[str, TaskFunction],
        periodic: Mapping[str, float],
        poll: float = POLL,
    ) -> None:
        self._context = context
        self._store = context.store
        self.applier = Applier(context, router)
        self._kinds = kinds
        self._periodic = periodic  # task kind -> seconds between runs
        self._ends = TaskEnds(context.store, periodic=periodic)
        self._poll = poll
        self._owner = secrets.token_hex(8)
        self._background = frozenset(kind for feature in context.features for kind in feature.background)
        self._running: dict[asyncio.Task[None], Task] = {}  # and what they run
        self._paused: set[str] = set()  # names of tasks that are not to run again yet
        self._claiming = asyncio.Lock()  # held while a claimed task may not be among the running yet
        self._stopping = asyncio.Event()
        self._latest = 0  # epoch milliseconds of the last poll
        self._errors = log_output.ErrorLog(log)

    async def run(self) -> None:
        """Work until `stop`; then finish what can be finished and return the rest to the queue."""
        preparing = asyncio.create_task(self._prepare_until_stored())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((preparing, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not preparing.done():  # the database does not answer
            await self._end([preparing])
            return
        preparing.result()
        loops = [
            *map(
                asyncio.create_task, (self._work(), self._heartbeat(), postgres.listen_for_work(self._store))
            )
        ]
        await self._stopping.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await asyncio.wait(loops[:1])  # it may be claiming: what it still starts is finished, too
                while self._running:
                    await asyncio.wait(set(self._running))
        if not await self._end((*self._running, *loops)):
            return
        with contextlib.suppress(StoreUnavailable):  # then the leases expire
            async with self._store.transaction(lock_timeout=LOCK_TIMEOUT) as tx:
                await tasks.release(tx, owner=self._owner)

    async def _end(self, running: Sequence[asyncio.Task[None]]) -> bool:
        """Cancel what still runs; returns False if the database did not answer: its connections are dropped then."""
        for task in running:
            task.cancel()
        drains = (self._ends.drain(), self._store.drain())
        ending = [*running, *(asyncio.create_task(drain) for drain in drains)]
        _, waiting = await asyncio.wait(ending, timeout=CANCELLED_WITHIN)
        answered = not waiting
        while waiting:  # what was cancelled may have begun to ask on another connection
            self._store.hang_up()
            _, waiting = await asyncio.wait(waiting, timeout=CANCELLED_WITHIN)
        await asyncio.gather(*ending, return_exceptions=True)
        return answered

    def stop(self) -> None:
        """Take no new work."""
        self._stopping.set()
        self._store.work_waiting.set()

    async def _prepare_until_stored(self) -> None:
        """Prepare, until the database can be used: the process answers already and must not end."""
        while True:
            try:
                return await self.prepare()
            except StoreUnavailable as error:
                self._errors.write(DATABASE_AWAY, error)
                await asyncio.sleep(POLL)

    async def prepare(self) -> None:
        """Release what crashed processes left behind, and enqueue periodic work."""
        async with self._store.transaction() as tx:
            await tasks.wake_postdated(tx)
            if self._store.sqlite:  # one process only: whatever still runs belonged to one that is gone
                await tasks.release_all(tx)
                for on_start in load_each(self._context.features, "on_start"):
                    await on_start(tx)
                for kind in self._periodic:
                    tx.enqueue(kind, "")
            else:
                await tasks.release(tx)
                await tasks.ensure_periodic(tx, self._periodic)

    async def step(self) -> bool:
        """Apply one batch and run the tasks due now to their end; returns whether there was anything to do.

        Nothing is paused: a caller that takes steps has its own clock.
        """
        self._paused.clear()
        applied = await self.apply()
        started = await self._start_tasks()
        if self._running:
            await asyncio.wait(set(self._running))
        return bool(applied or started)

    async def apply(self) -> int:
        """Apply a batch of what has arrived and one of what is due in the inbox; returns how many were taken."""
        return await self.applier.apply_arrived() + await self.applier.apply_due()

    async def _start_tasks(self) -> int:
        if (free := SLOTS - len(self._running)) <= 0 or self._stopping.is_set():
            return 0
        async with self._claiming:
            async with self._store.transaction() as tx:
                if tx.now < self._latest:  # the clock was ahead, and was corrected
                    await tasks.wake_postdated(tx)
                self._latest = tx.now
                claimed = await self._claim(tx, free)
            for task in claimed:
                running = asyncio.create_task(self._run_task(task))
                self._running[running] = task
                running.add_done_callback(self._task_ended)
        return len(claimed)

    async def _claim(self, tx: Transaction, free: int) -> list[Task]:
        """Claim what is due; the background gets what the others leave, and never more than its share."""
        owner, paused = self._owner, [*self._paused]
        claimed = await tasks.claim(tx, owner=owner, limit=free, kinds=self._kinds, paused=paused)
        taken = sum(running_task.kind in self._background for running_task in self._running.values())
        if self._background and (left := min(free - len(claimed), BACKGROUND_SLOTS - taken)) > 0:
            kinds = self._background & self._kinds.keys()
            claimed += await tasks.claim(
                tx, owner=owner, limit=left, kinds=kinds, background=True, paused=paused
            )
        return claimed

    def _pause(self, task: Task, seconds: float) -> None:
        """Pause a kind and key in this process for a while."""
        name = tasks.name_of(task)
        self._paused.add(name)
        asyncio.get_running_loop().call_later(seconds, self._resume, name)

    def _resume(self, name: str) -> None:
        self._paused.discard(name)
        self._store.work_waiting.set()

    def _task_ended(self, running: asyncio.Task[None]) -> None:
        del self._running[running]
        if not running.cancelled() and (error := running.exception()):
            log.error("a task's end could not be stored; it will run again", error=repr(error))
        self._store.work_waiting.set()

    async def _run_task(self, task: Task) -> None:
        with (
            structlog.contextvars.bound_contextvars(task=task.kind, key=task.key, delivery=task.cause),
            traces.span(
                f"task {task.kind}", cause=task.cause or f"task {task.id}", ootbot_key=task.key
            ) as span,
        ):
            outcome = await self._attempt(task)
            if isinstance(outcome, RetryLater) and not isinstance(outcome, NotYet):
                # another request would not make it succeed, and many may come
                soonest = tasks.BACKOFF[0]
                self._pause(task, soonest if outcome.after is None else min(outcome.after, soonest))
            if span and outcome is not None:
                span.set_attribute("error.type", type(outcome).__name__)
        ended = "done" if outcome is None else "retried" if isinstance(outcome, RetryLater) else "given_up"
        metrics.TASK_RUNS.labels(task.kind, ended).inc()
        await self._ends.store(task, outcome)

    async def _attempt(self, task: Task) -> Exception | None:
        """Run a task; returns None, RetryLater, or the reason it can never succeed."""
        try:
            if pause := await self._kinds[task.kind](self._context, task):
                self._pause(task, pause)
        except RetryLater as error:
            log.info("task will be retried", reason=str(error), after=error.after, attempts=task.attempts)
            return error
        except GitHubRefused as error:
            if again := responses.wait_while_young(error, self._context.clock.now() - task.created_at):
                log.info("task will be retried", reason=str(again), after=again.after, attempts=task.attempts)
                return again
            log.warning("task given up", reason=str(error))
            return error
        except GiveUp as error:
            log.warning("task given up", reason=str(error))
            return error
        except Exception as error:  # noqa: BLE001 - logged
            self._errors.write("task failed", error, attempts=task.attempts)
            reason = f"{type(error).__name__}: {error}"[:2000]
            return RetryLater(reason) if task.attempts < tasks.MAX_ATTEMPTS else GiveUp(reason)
        return None

    async def _work(self) -> None:
        loop, looks_at = asyncio.get_running_loop(), 0.0
        while not self._stopping.is_set():
            self._store.work_waiting.clear()
            due, started = loop.time() + TOGETHER, 0
            try:
                applied = await self.applier.apply_arrived()
                if applied < BATCH or loop.time() >= looks_at:  # while more arrives than that, now and then
                    applied += await self.applier.apply_due()
                    started = await self._start_tasks()
                    looks_at = loop.time() + LOOKS_EVERY
            except Exception as error:  # noqa: BLE001 - logged
                self._errors.write(DATABASE_AWAY, error)
                await asyncio.sleep(POLL)
                continue
            if not applied and not started:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._store.work_waiting.wait(), self._poll)
            if applied < BATCH and not (started and len(self._running) >= SLOTS):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), due - loop.time())

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT)
            try:
                async with self._claiming, self._store.transaction() as tx:
                    # claimed by us but not running here: its end, or its start, could not be stored
                    await tasks.release(
                        tx,
                        owner=self._owner,
                        but=[running_task.id for running_task in self._running.values()],
                    )
                    await tasks.renew(tx, owner=self._owner)
                    await tasks.release(tx)
            except Exception as error:  # noqa: BLE001 - logged
                self._errors.write("leases could not be renewed; trying again", error)


class TaskEnds:
    """Stores the ends of one worker's tasks: those that end while a commit runs are stored by the next."""

    def __init__(self, store: Store, *, periodic: Mapping[str, float]) -> None:
        self._store = store
        self._periodic = periodic  # task kind -> seconds between runs
        self._group: GroupCommit[_TaskEnd, None] = GroupCommit(
            self._write, max_items=MOST_TASK_ENDS, max_size=MOST_TASK_ENDS, size=lambda _end: 1
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
        ended = _TaskEnd(task=task, outcome=outcome)
        await retry_until_stored(self._store.clock, partial(self._group.put, ended))

    async def drain(self) -> None:
        """Wait until nothing is being stored."""
        await self._group.drain()

    async def _write(self, ends: Sequence[_TaskEnd]) -> list[None]:
        await self._store.write(partial(self._write_in, ends))
        return [None] * len(ends)

    async def _write_in(self, ends: Sequence[_TaskEnd], tx: Transaction) -> None:
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


def _without_reason(outcome: Exception | None) -> Exception | None:
    if isinstance(outcome, RetryLater):
        return RetryLater(NOT_STORABLE, after=outcome.after)
    return GiveUp(NOT_STORABLE) if outcome else None
