"""Does a sink hold what is stored here? Counts by day, and the content of one row in a hundred."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bot.core.feature import load
from bot.db.exports import encode_key
from bot.sinks.current_rows import load_content, read_current
from bot.sinks.driver import Batch
from bot.sinks.open_sinks import SINKS
from bot.sinks.store import key_pages, marks, refused_rows, states

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bot.context import Context
    from bot.db.exports import Key
    from bot.sinks.driver import Checker, Outgoing
    from bot.sinks.lanes import Lane

DAY = 86_400_000  # milliseconds
PAGE = 10_000  # keys read at once
MISSING = "it is missing"
SAMPLED = 100  # one in so many
REPORTED = 100  # differences by name
REFUSED_MOST = 100_000


@dataclass(kw_only=True)
class Compared:
    """What comparing an export came to."""

    expected: Counter[int] = field(default_factory=Counter)  # rows by day since 1970
    missing: Counter[int] = field(default_factory=Counter)
    sampled: int = 0
    waiting: int = 0  # rows that differ and are to be sent
    differences: list[tuple[str, str]] = field(default_factory=list)  # key and words; the first of them

    @property
    def is_same(self) -> bool:
        """Whether nothing differs but what is to be sent."""
        return not self.differences


async def compare_lane(
    context: Context, lane: Lane, *, since: int = 0, report: Callable[[int], None] | None = None
) -> Compared:
    """Compare all rows since a time, page by page."""
    async with context.store.read() as tx:
        state = await states.read_one(tx, lane.sink.name, lane.what)
    driver = context.resource(SINKS).driver(lane.sink)
    checker = driver.checker(Batch(export=lane.export, make=load(lane.shape.make), items=()))
    began_at = state["began_at"] if state else context.clock.now()
    comparison = _Comparison(context=context, lane=lane, checker=checker, began_at=began_at)
    after: str | None = None
    while True:
        async with context.store.read() as tx:
            page = await key_pages.read_page(tx, lane.export, after=after, limit=PAGE, since=since)
        keys = list(page.times)
        for start in range(0, len(keys), lane.shape.most):
            await comparison.compare(keys[start : start + lane.shape.most], page.times)
        if report:
            report(comparison.found.expected.total())
        if page.after is None:
            return comparison.found
        after = encode_key(page.after)


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """A comparison that goes on."""

    context: Context
    lane: Lane
    checker: Checker
    began_at: int  # what is older was not to be sent, unless it was asked for
    found: Compared = field(default_factory=Compared)

    async def compare(self, keys: Sequence[Key], times: Mapping[Key, int]) -> None:
        """Compare some keys; what differs is looked at again, since rows change meanwhile."""
        items = await _read(self.context, self.lane, keys)
        there = [item for item in items if not item.deleted]
        missing = await self.checker.missing(there)
        older = {key for key in missing if times[key] < self.began_at}
        there = [item for item in there if item.key not in older]
        self.found.expected.update(times[item.key] // DAY for item in there)
        suspects = dict.fromkeys(missing - older, MISSING)
        gone = [item for item in items if item.deleted and item.row is not None]
        left = {item.key for item in gone} - await self.checker.missing(gone)
        suspects |= dict.fromkeys(left, "it was deleted here")
        sample = [item for item in there if item.key not in suspects and _is_sampled(item.key)]
        self.found.sampled += len(sample)
        suspects |= {one.key: one.words for one in await self.checker.differing(sample)}
        if suspects:
            await self._add_differences(suspects, times)

    async def _add_differences(self, suspects: Mapping[Key, str], times: Mapping[Key, int]) -> None:
        again = {item.key: item for item in await _read(self.context, self.lane, list(suspects))}
        texts = {encode_key(key): key for key in suspects}
        waiting, reasons = await self._known_reasons(list(texts))
        self.found.waiting += len(waiting)
        unmarked = [again[key] for text, key in texts.items() if text not in waiting and key in again]
        there = [item for item in unmarked if not item.deleted]
        still = {one.key: one.words for one in await self.checker.differing(there)}
        for item in unmarked:
            if not item.deleted and item.key not in still:
                continue
            self.found.missing[times[item.key] // DAY] += suspects[item.key] == MISSING
            text = encode_key(item.key)
            words = reasons.get(text) or still.get(item.key) or suspects[item.key]
            if len(self.found.differences) < REPORTED:
                self.found.differences.append((text, words))

    async def _known_reasons(self, keys: Sequence[str]) -> tuple[set[str], dict[str, str]]:
        """Return which keys are to be sent, and why others were refused."""
        sink, what = self.lane.sink.name, self.lane.what
        async with self.context.store.read() as tx:
            waiting = await marks.marked_among(tx, sink, what, keys)
            refused = await refused_rows.list_refused(tx, sink=sink, what=what, limit=REFUSED_MOST)
        return waiting, {row["key"]: f"it was refused: {row['error']}" for row in refused}


async def _read(context: Context, lane: Lane, keys: Sequence[Key]) -> list[Outgoing]:
    async with context.store.read() as tx:
        current = await read_current(tx, context, lane, keys)
    return await load_content(context, lane, current.items)


def _is_sampled(key: Key) -> bool:
    return int.from_bytes(hashlib.blake2s(encode_key(key).encode(), digest_size=4).digest()) % SAMPLED == 0
