"""Task sink: sends the changes of one export to one sink. Key: sink and export, by `/`.

The oldest changes are taken, the current rows read in the same snapshot and sent; then those changes are removed that
were not noted again meanwhile. After a crash the same is sent again. While a batch is sent, the next is read, of other
keys.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, NamedTuple

import structlog
from prometheus_client import Counter, Gauge, Histogram

from bot.core.errors import RetryLater
from bot.core.feature import load
from bot.db.exports import decode_key, encode_key
from bot.sinks import changes, current_rows, queue_rows
from bot.sinks.current_rows import load_content, read_current
from bot.sinks.driver import Batch, BatchRefused, Refusal, SinkAway, Stopped, mask_credentials
from bot.sinks.queues import SINKS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.queue.tasks import Task
    from bot.sinks.driver import Driver, Outgoing
    from bot.sinks.queues import ExportQueue
    from bot.sinks.tables import PendingChange, QueueStateRow
    from bot.web.access import Hidden

LAG_GAUGE = Gauge(
    "ootbot_sink_lag_seconds", "Age of the oldest change that a sink does not have.", ["sink", "what"]
)
WAITING_GAUGE = Gauge("ootbot_sink_waiting_rows", "Rows that are to be sent to a sink.", ["sink", "what"])
SENT_COUNTER = Counter("ootbot_sink_rows_total", "Rows that a sink has taken.", ["sink", "what"])
REFUSED_COUNTER = Counter("ootbot_sink_refused_total", "Rows that a sink does not take.", ["sink", "what"])
BATCH_HISTOGRAM = Histogram(
    "ootbot_sink_batch_seconds",
    "Time to read and send a batch.",
    ["sink"],
    buckets=(0.05, 0.25, 1, 5, 15, 60),
)
RUN_SECONDS = 30.0  # seconds of one run: others wait for its turn
LONGEST_WAIT = 300  # seconds until a sink that is away is asked again
TURN_DELAY = 1.0  # seconds until a task asks for its turn again
ERROR_MOST = 300  # characters of an error

log = structlog.get_logger("bot.sinks")


class _SendingRun(NamedTuple):
    """One run of the task."""

    name: str
    version: int  # of its first batch; that of each further one is greater by one


class _TakenBatch(NamedTuple):
    """Changes, and the current rows of their keys."""

    marks: list[PendingChange]
    items: list[Outgoing]
    took: float  # seconds


class _SentBatch(NamedTuple):
    """The result of sending a batch."""

    rows: int
    refused: dict[str, str]  # reasons by key


async def measure_sinks(tx: Transaction, _settings: Settings, _hidden: Hidden) -> Callable[[], None]:
    """Return a function that shows how far sinks lag."""
    waiting = await changes.count_waiting(tx)

    def show() -> None:
        LAG_GAUGE.clear()
        WAITING_GAUGE.clear()
        for (sink, what), waits in waiting.items():
            LAG_GAUGE.labels(sink, what).set(max(tx.now - waits.since, 0) / 1000)
            WAITING_GAUGE.labels(sink, what).set(waits.rows)

    return show


async def send_changes(context: Context, task: Task) -> None:
    """Send the changes of an export, until none are left or it is the turn of others."""
    sinks = context.resource(SINKS)
    queue = sinks.queues.get(task.key)
    if queue is None:  # it was taken out of the settings, or another process has newer ones
        return
    async with sinks.turn(queue.sink) as has_turn:
        again = await _send_queue(context, queue) if has_turn else TURN_DELAY
    if again is not None:
        async with context.store.transaction() as tx:
            tx.enqueue(task.kind, task.key, delay=again)


def is_held(queue: ExportQueue, state: QueueStateRow) -> bool:
    """Whether nothing is sent until somebody resumes it."""
    return queue.sink.paused or state["paused"] or state["stopped"] is not None


def backoff(failures: int) -> float:
    """Return the seconds until the next attempt after so many failures in a row."""
    return float(min(2 ** min(failures, 20), LONGEST_WAIT))


async def send_all(driver: Driver, queue: ExportQueue, items: Sequence[Outgoing]) -> list[Refusal]:
    """Send rows; halve a refused batch until only refused rows remain, and return those."""
    if not items:
        return []
    make = load(queue.shape.make)
    try:
        return list(await driver.send(Batch(export=queue.export, make=make, items=items)))
    except BatchRefused as error:
        if len(items) == 1:
            return [Refusal(key=items[0].key, reason=str(error))]
    middle = len(items) // 2
    await asyncio.sleep(0)
    return [*await send_all(driver, queue, items[:middle]), *await send_all(driver, queue, items[middle:])]


async def _send_queue(context: Context, queue: ExportQueue) -> float | None:
    """Send; returns the seconds until more is to be sent, None if nothing is left."""
    run = await _begin_run(context, queue)
    if run is None:
        return None
    try:
        left = await _send_until(context, queue, run, time.monotonic() + RUN_SECONDS)
    except SinkAway as error:
        raise await _note_away(context, queue, error) from None
    except Stopped as error:
        reason = mask_credentials(str(error))[:ERROR_MOST]
        log.warning(
            "an export is stopped until it is resumed", sink=queue.sink.name, what=queue.what, reason=reason
        )
        async with context.store.transaction() as tx:
            await queue_rows.stop_queue(tx, queue.sink.name, queue.what, reason)
        return None
    return 0 if left else None


async def _begin_run(context: Context, queue: ExportQueue) -> _SendingRun | None:
    """Begin a run, and return it; None if nothing is to be sent."""
    name = secrets.token_hex(8)
    async with context.store.transaction() as tx:
        await queue_rows.add_new_states(tx, [queue])
        state = await queue_rows.read_state(tx, queue.sink.name, queue.what)
        assert state
        if is_held(queue, state):
            return None
        if state["due_at"] > tx.now:
            wait = (state["due_at"] - tx.now) / 1000
            raise RetryLater(state["error"] or f"{queue.sink.name} was away", after=wait)
        return _SendingRun(name, await queue_rows.begin_run(tx, state, name))


async def _note_away(context: Context, queue: ExportQueue, error: SinkAway) -> RetryLater:
    """Note when to try a sink again, and return the error that ends the task."""
    reason = mask_credentials(str(error))[:ERROR_MOST]
    async with context.store.transaction() as tx:
        state = await queue_rows.read_state(tx, queue.sink.name, queue.what)
        failures = state["failures"] if state else 0
        wait = backoff(failures) if error.after is None else error.after
        await queue_rows.note_failure(
            tx, queue.sink.name, queue.what, reason, due_at=tx.now + round(wait * 1000)
        )
    return RetryLater(f"{queue.sink.name}: {reason}", after=wait)


async def _send_until(context: Context, queue: ExportQueue, run: _SendingRun, until: float) -> bool:
    """Send batch after batch, reading the next meanwhile; returns whether something is left."""
    driver = context.resource(SINKS).driver(queue.sink)
    version = run.version
    reading = asyncio.create_task(_read_batch(context, queue, version, None))
    try:
        while (taken := await reading).marks:
            is_last = len(taken.marks) < _batch_most(queue)
            if not is_last:
                version += 1
                reading = asyncio.create_task(_read_batch(context, queue, version, taken.marks[-1]))
            await _send_batch(context, queue, run, driver, taken)
            if is_last:
                return False
            if time.monotonic() > until:
                return True
        return False
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


def _batch_most(queue: ExportQueue) -> int:
    return min(queue.sink.batch_rows, queue.shape.most)


async def _read_batch(
    context: Context, queue: ExportQueue, version: int, after: PendingChange | None
) -> _TakenBatch:
    """Read the oldest changes after a given one, and the current rows of their keys."""
    sink, what = queue.sink.name, queue.what
    began = time.monotonic()
    async with context.store.read() as tx:
        taken = await changes.take_oldest_changes(tx, sink, what, most=_batch_most(queue), after=after)
        keys = [decode_key(mark["key"]) for mark in taken]
        current = await read_current(tx, context, queue, keys, version=version)
    if current.new_repository_ids:  # before it gets copies: the repositories may turn private
        async with context.store.transaction() as tx:
            await current_rows.note_exported(tx, sink, current.new_repository_ids)
    return _TakenBatch(taken, current.items, time.monotonic() - began)


async def _send_batch(
    context: Context, queue: ExportQueue, run: _SendingRun, driver: Driver, taken: _TakenBatch
) -> None:
    """Send what was read, and store the result."""
    began = time.monotonic()
    items = await load_content(context, queue, taken.items)
    refused = {
        encode_key(refusal.key): mask_credentials(refusal.reason)[:ERROR_MOST]
        for refusal in await send_all(driver, queue, items)
    }
    await _store_sent(context, queue, run, taken.marks, _SentBatch(len(items) - len(refused), refused))
    BATCH_HISTOGRAM.labels(queue.sink.name).observe(taken.took + time.monotonic() - began)


async def _store_sent(
    context: Context, queue: ExportQueue, run: _SendingRun, taken: Sequence[PendingChange], sent: _SentBatch
) -> None:
    sink, what = queue.sink.name, queue.what
    async with context.store.transaction() as tx:
        if await queue_rows.is_running(tx, sink, what, run.name):
            await changes.remove_sent_changes(tx, sink, what, taken)
        else:  # this run was taken for dead: what it sent may have replaced what is newer
            await changes.note_changes(tx, [(sink, what, mark["key"]) for mark in taken])
        await queue_rows.forget_refused(tx, sink, what, [mark["key"] for mark in taken])
        await queue_rows.note_refused(tx, sink, what, sent.refused)
        await queue_rows.note_sent(tx, sink, what, sent.rows)
    SENT_COUNTER.labels(sink, what).inc(sent.rows)
    REFUSED_COUNTER.labels(sink, what).inc(len(sent.refused))
    for key, reason in sent.refused.items():
        log.warning("a row was refused", sink=sink, what=what, key=key, reason=reason)
