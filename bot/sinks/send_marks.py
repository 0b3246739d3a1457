"""Task sink: sends what is marked of one export to one sink. Key: sink and export, by `/`.

Marks are taken oldest first, what is true now is read in the same snapshot, sent, and then the marks are removed that
were not raised again meanwhile. A crash anywhere only means that the same is sent again. While a batch is sent, the
next is read: of other keys, so that neither says anything of the other.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, NamedTuple

import structlog

from bot.core.errors import RetryLater
from bot.core.feature import load
from bot.db.exports import decode_key, encode_key
from bot.sinks import metrics
from bot.sinks.current_rows import load_content, read_current
from bot.sinks.driver import Batch, BatchRefused, Refusal, SinkAway, Stopped
from bot.sinks.masked import mask_credentials
from bot.sinks.open_sinks import SINKS
from bot.sinks.store import marks, refused_rows, states, visibility_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.context import Context
    from bot.queue.tasks import Task
    from bot.sinks.driver import Driver, Outgoing
    from bot.sinks.lanes import Lane
    from bot.sinks.tables import Mark, StateRow

RUN_MOST = 30.0  # seconds of one run: others wait for its turn
LONGEST_WAIT = 300  # seconds until a sink that is away is asked again
TURN = 1.0  # seconds until a task asks for its turn again
SAID = 300  # characters of an error

log = structlog.get_logger("bot.sinks")


async def send_marks(context: Context, task: Task) -> None:
    """Send what is marked of an export, until nothing is left or others are to have their turn."""
    sinks = context.resource(SINKS)
    lane = sinks.lanes.get(task.key)
    if lane is None:  # it was taken out of the settings, or another process has newer ones
        return
    async with sinks.turn(lane.sink) as has_turn:
        again = await _send(context, lane) if has_turn else TURN
    if again is not None:
        async with context.store.transaction() as tx:
            tx.enqueue(task.kind, task.key, delay=again)


async def _send(context: Context, lane: Lane) -> float | None:
    """Send; returns after how many seconds there is more to be sent, None where there is nothing."""
    run = await _begin(context, lane)
    if run is None:
        return None
    try:
        left = await _send_until(context, lane, run, time.monotonic() + RUN_MOST)
    except SinkAway as error:
        raise await _note_away(context, lane, error) from None
    except Stopped as error:
        reason = mask_credentials(str(error))[:SAID]
        log.warning(
            "an export is stopped until it is resumed", sink=lane.sink.name, what=lane.what, reason=reason
        )
        async with context.store.transaction() as tx:
            await states.stop(tx, lane.sink.name, lane.what, reason)
        return None
    return 0 if left else None


class _Run(NamedTuple):
    """One run of the task."""

    name: str
    version: int  # of its first batch; that of each further one is greater by one


async def _begin(context: Context, lane: Lane) -> _Run | None:
    """Note that this run sends now, and return it; None where nothing is to be sent."""
    name = secrets.token_hex(8)
    async with context.store.transaction() as tx:
        await states.add_new(tx, [lane])
        state = await states.read_one(tx, lane.sink.name, lane.what)
        assert state
        if is_held(lane, state):
            return None
        if state["due_at"] > tx.now:
            wait = (state["due_at"] - tx.now) / 1000
            raise RetryLater(state["error"] or f"{lane.sink.name} was away", after=wait)
        return _Run(name, await states.begin_run(tx, state, name))


def is_held(lane: Lane, state: StateRow) -> bool:
    """Whether nothing is to be sent until somebody says so."""
    return lane.sink.paused or state["paused"] or state["stopped"] is not None


async def _note_away(context: Context, lane: Lane, error: SinkAway) -> RetryLater:
    """Note when a sink that is away is to be asked again, and return what the task ends with."""
    reason = mask_credentials(str(error))[:SAID]
    async with context.store.transaction() as tx:
        state = await states.read_one(tx, lane.sink.name, lane.what)
        failures = state["failures"] if state else 0
        wait = backoff(failures) if error.after is None else error.after
        await states.note_failure(tx, lane.sink.name, lane.what, reason, due_at=tx.now + round(wait * 1000))
    return RetryLater(f"{lane.sink.name}: {reason}", after=wait)


def backoff(failures: int) -> float:
    """Return the seconds until a sink is asked again that was away so many times in a row before."""
    return float(min(2 ** min(failures, 20), LONGEST_WAIT))


async def _send_until(context: Context, lane: Lane, run: _Run, until: float) -> bool:
    """Send batch after batch, the next of which is read meanwhile; returns whether something is left."""
    driver = context.resource(SINKS).driver(lane.sink)
    version = run.version
    reading = asyncio.create_task(_read_batch(context, lane, version, None))
    try:
        while (taken := await reading).marks:
            is_last = len(taken.marks) < _most(lane)
            if not is_last:
                version += 1
                reading = asyncio.create_task(_read_batch(context, lane, version, taken.marks[-1]))
            await _send_batch(context, lane, run, driver, taken)
            if is_last:
                return False
            if time.monotonic() > until:
                return True
        return False
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


def _most(lane: Lane) -> int:
    return min(lane.sink.batch_rows, lane.shape.most)


class _Taken(NamedTuple):
    """Marks, and what is true now of what they mark."""

    marks: list[Mark]
    items: list[Outgoing]
    took: float  # seconds


class _Sent(NamedTuple):
    """What a batch came to."""

    rows: int
    refused: dict[str, str]  # reasons by key


async def _read_batch(context: Context, lane: Lane, version: int, after: Mark | None) -> _Taken:
    """Read the oldest marks after one, and what is true now of what they mark."""
    sink, what = lane.sink.name, lane.what
    began = time.monotonic()
    async with context.store.read() as tx:
        taken = await marks.take_oldest(tx, sink, what, most=_most(lane), after=after)
        keys = [decode_key(mark["key"]) for mark in taken]
        current = await read_current(tx, context, lane, keys, version=version)
    if current.new_repository_ids:  # before it gets copies: the repositories may turn private
        async with context.store.transaction() as tx:
            await visibility_rows.note_exported(tx, sink, current.new_repository_ids)
    return _Taken(taken, current.items, time.monotonic() - began)


async def _send_batch(context: Context, lane: Lane, run: _Run, driver: Driver, taken: _Taken) -> None:
    """Send what was read, and note what became of it."""
    began = time.monotonic()
    items = await load_content(context, lane, taken.items)
    refused = {
        encode_key(one.key): mask_credentials(one.reason)[:SAID]
        for one in await send_all(driver, lane, items)
    }
    await _store_sent(context, lane, run, taken.marks, _Sent(len(items) - len(refused), refused))
    metrics.BATCH_SECONDS.labels(lane.sink.name).observe(taken.took + time.monotonic() - began)


async def _store_sent(context: Context, lane: Lane, run: _Run, taken: Sequence[Mark], sent: _Sent) -> None:
    sink, what = lane.sink.name, lane.what
    async with context.store.transaction() as tx:
        if await states.is_running(tx, sink, what, run.name):
            await marks.remove_sent(tx, sink, what, taken)
        else:  # this run was taken for dead: what it sent may have replaced what is newer
            await marks.raise_marks(tx, [(sink, what, mark["key"]) for mark in taken])
        await refused_rows.forget_refused(tx, sink, what, [mark["key"] for mark in taken])
        await refused_rows.note_refused(tx, sink, what, sent.refused)
        await states.note_sent(tx, sink, what, sent.rows)
    metrics.ROWS.labels(sink, what).inc(sent.rows)
    metrics.REFUSED.labels(sink, what).inc(len(sent.refused))
    for key, reason in sent.refused.items():
        log.warning("a row was refused", sink=sink, what=what, key=key, reason=reason)


async def send_all(driver: Driver, lane: Lane, items: Sequence[Outgoing]) -> list[Refusal]:
    """Send rows; a batch that is refused is halved until what is refused stands alone. Returns those."""
    if not items:
        return []
    make = load(lane.shape.make)
    try:
        return list(await driver.send(Batch(export=lane.export, make=make, items=items)))
    except BatchRefused as error:
        if len(items) == 1:
            return [Refusal(key=items[0].key, reason=str(error))]
    middle = len(items) // 2
    await asyncio.sleep(0)
    return [*await send_all(driver, lane, items[:middle]), *await send_all(driver, lane, items[middle:])]
