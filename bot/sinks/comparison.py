"""Compare a sink with what we store: counts by day, and the content of one row in a hundred."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bot.core.feature import load
from bot.db.exports import encode_key
from bot.sinks import changes, queue_rows
from bot.sinks.current_rows import load_content, read_current
from bot.sinks.driver import Batch
from bot.sinks.queues import SINKS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bot.context import Context
    from bot.db.exports import RowKey
    from bot.sinks.driver import Checker, Outgoing
    from bot.sinks.queues import ExportQueue

DAY = 86_400_000  # milliseconds
KEYS_AT_ONCE = 10_000  # keys read at once
MISSING_WORDS = "it is missing"
SAMPLED_ONE_IN = 100  # one in so many
REPORTED_MOST = 100  # differences by name
REFUSED_MOST = 100_000


@dataclass(kw_only=True)
class QueueComparison:
    """The result of comparing an export."""

    expected: Counter[int] = field(default_factory=Counter)  # rows by day since 1970
    missing: Counter[int] = field(default_factory=Counter)
    sampled: int = 0
    waiting: int = 0  # rows that differ and are to be sent
    differences: list[tuple[str, str]] = field(default_factory=list)  # key and words; the first of them

    @property
    def is_same(self) -> bool:
        """Whether nothing differs but what is to be sent."""
        return not self.differences


async def compare_queue(
    context: Context, queue: ExportQueue, *, since: int = 0, report: Callable[[int], None] | None = None
) -> QueueComparison:
    """Compare all rows since a time, page by page."""
    async with context.store.read() as tx:
        state = await queue_rows.read_state(tx, queue.sink.name, queue.what)
    driver = context.resource(SINKS).driver(queue.sink)
    checker = driver.checker(Batch(export=queue.export, make=load(queue.shape.make), items=()))
    began_at = state["began_at"] if state else context.clock.now()
    comparison = _RunningComparison(context=context, queue=queue, checker=checker, began_at=began_at)
    after: str | None = None
    while True:
        async with context.store.read() as tx:
            page = await queue_rows.read_key_page(
                tx, queue.export, after=after, limit=KEYS_AT_ONCE, since=since
            )
        keys = list(page.times)
        for start in range(0, len(keys), queue.shape.most):
            await comparison.compare(keys[start : start + queue.shape.most], page.times)
        if report:
            report(comparison.result.expected.total())
        if page.after is None:
            return comparison.result
        after = encode_key(page.after)


@dataclass(frozen=True, kw_only=True)
class _RunningComparison:
    """A comparison under way."""

    context: Context
    queue: ExportQueue
    checker: Checker
    began_at: int  # what is older was not to be sent, unless it was asked for
    result: QueueComparison = field(default_factory=QueueComparison)

    async def compare(self, keys: Sequence[RowKey], times: Mapping[RowKey, int]) -> None:
        """Compare some keys, and check again those that differ, since rows change meanwhile."""
        items = await _read_outgoing(self.context, self.queue, keys)
        there = [item for item in items if not item.deleted]
        missing = await self.checker.missing(there)
        older = {key for key in missing if times[key] < self.began_at}
        there = [item for item in there if item.key not in older]
        self.result.expected.update(times[item.key] // DAY for item in there)
        suspects = dict.fromkeys(missing - older, MISSING_WORDS)
        gone = [item for item in items if item.deleted and item.row is not None]
        left = {item.key for item in gone} - await self.checker.missing(gone)
        suspects |= dict.fromkeys(left, "it was deleted here")
        sample = [item for item in there if item.key not in suspects and _is_sampled(item.key)]
        self.result.sampled += len(sample)
        suspects |= {difference.key: difference.words for difference in await self.checker.differing(sample)}
        if suspects:
            await self._add_differences(suspects, times)

    async def _add_differences(self, suspects: Mapping[RowKey, str], times: Mapping[RowKey, int]) -> None:
        again = {item.key: item for item in await _read_outgoing(self.context, self.queue, list(suspects))}
        texts = {encode_key(key): key for key in suspects}
        waiting, reasons = await self._known_reasons(list(texts))
        self.result.waiting += len(waiting)
        unmarked = [again[key] for text, key in texts.items() if text not in waiting and key in again]
        there = [item for item in unmarked if not item.deleted]
        still = {difference.key: difference.words for difference in await self.checker.differing(there)}
        for item in unmarked:
            if not item.deleted and item.key not in still:
                continue
            self.result.missing[times[item.key] // DAY] += suspects[item.key] == MISSING_WORDS
            text = encode_key(item.key)
            words = reasons.get(text) or still.get(item.key) or suspects[item.key]
            if len(self.result.differences) < REPORTED_MOST:
                self.result.differences.append((text, words))

    async def _known_reasons(self, keys: Sequence[str]) -> tuple[set[str], dict[str, str]]:
        """Return which keys are to be sent, and why others were refused."""
        sink, what = self.queue.sink.name, self.queue.what
        async with self.context.store.read() as tx:
            waiting = await changes.waiting_among(tx, sink, what, keys)
            refused = await queue_rows.list_refused(tx, sink=sink, what=what, limit=REFUSED_MOST)
        return waiting, {row["key"]: f"it was refused: {row['error']}" for row in refused}


async def _read_outgoing(context: Context, queue: ExportQueue, keys: Sequence[RowKey]) -> list[Outgoing]:
    async with context.store.read() as tx:
        current = await read_current(tx, context, queue, keys)
    return await load_content(context, queue, current.items)


def _is_sampled(key: RowKey) -> bool:
    return (
        int.from_bytes(hashlib.blake2s(encode_key(key).encode(), digest_size=4).digest()) % SAMPLED_ONE_IN
        == 0
    )
