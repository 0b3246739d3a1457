"""Marking what there was before: in pages, for a new sink, `ootbot sink backfill`, and repositories turned private."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bot.db.exports import encode_key
from bot.sinks.marking import SEND
from bot.sinks.store import key_pages, marks, states

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.db.store import Store
    from bot.sinks.lanes import Lane

PAGE = 10_000  # keys marked in one transaction
PART = 1_000  # of them in one statement: SQLite's writer is not kept for longer
BREATH = 0.05  # seconds between two pages, for other writers


async def fill_lane(store: Store, lane: Lane, report: Callable[[int], None] | None = None) -> int:
    """Mark what a lane's state says is to be marked, from where it stopped last; returns how many there were."""
    sink, what = lane.sink.name, lane.what
    total = 0
    while True:
        async with store.read() as tx:
            state = await states.read_one(tx, sink, what)
            if state is None or state["filled_from"] is None:
                return total
            page = await key_pages.read_page(
                tx, lane.export, after=state["filled_after"], limit=PAGE, since=state["filled_from"]
            )
        await _mark_page(store, lane, page)
        after = None if page.after is None else encode_key(page.after)
        async with store.transaction() as tx:
            await states.note_filled(tx, sink, what, after, len(page.times))
            tx.enqueue(SEND, lane.task_key)
        total += len(page.times)
        if report:
            report(total)
        await store.clock.sleep(BREATH)


async def mark_repository(store: Store, lane: Lane, repository_id: int) -> int:
    """Mark all that an export has of a repository; returns how many keys."""
    after: str | None = None
    total = 0
    while True:
        async with store.read() as tx:
            page = await key_pages.read_page(
                tx, lane.export, after=after, limit=PAGE, repository_id=repository_id
            )
        await _mark_page(store, lane, page)
        total += len(page.times)
        if page.after is None:
            return total
        after = encode_key(page.after)
        await store.clock.sleep(BREATH)


async def _mark_page(store: Store, lane: Lane, page: key_pages.Page) -> None:
    keys = list(page.times)
    for start in range(0, len(keys), PART):
        part = [(lane.sink.name, lane.what, encode_key(key)) for key in keys[start : start + PART]]
        async with store.transaction() as tx:
            await marks.raise_marks(tx, part)
        await asyncio.sleep(0)
