"""What did each backend do, day by day? Kept in oot_day; a day whose rows changed is counted afresh until it is again.

Whoever changes a row marks its day stale in the same transaction (`touch_jobs`, `touch_dispatches`); the task `rollup`
writes stale days anew. So what is read here is always what the rows add up to, whenever that task runs.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from bot.domain import histogram
from bot.domain.days import DAY, Counting, Day
from bot.domain.tally import ENDS, Tally
from bot.store import counted
from bot.store.rollup_tables import COUNTS, HISTOGRAMS, oot_day, oot_stale_day
from bot.store.tables import ATTEMPTS, oot_dispatch, oot_workflow_job

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bot.store.transaction import Transaction

Row = dict[str, Any]
Place = tuple[int, str]  # a day, a backend's case folded name
Marks = dict[str, object]  # by backend: another one as soon as any of its days is another
SLICE = 100  # days made at a time
READ = tuple(
    oot_day.c[name]
    for name in (
        "day",
        "backend",
        "level",
        "upstream_key",
        "event_type",
        "hours",
        "last_at",
        *HISTOGRAMS,
        *COUNTS,
    )
)
JOB, TOLD = oot_workflow_job.c, oot_dispatch.c
SAME_JOB = ATTEMPTS[:-1]


@dataclass(kw_only=True)
class Lately:
    """What one backend did since some time."""

    oldest: int  # epoch milliseconds: nothing of it is older
    days: list[Day]


async def touch_jobs(tx: Transaction, rows: Collection[Row]) -> None:
    """Mark the days that job rows count for: their own, those of the rows they overtake, that of a silent dispatch.

    Overtaken are earlier attempts, and what a relay told of the same one.
    """
    for row in rows:
        tx.stale_days.add((row["received_at"] // DAY, row["downstream_repo"].casefold()))
    same = {tuple(row[name] for name in SAME_JOB) for row in rows}
    if same:
        query = sa.select(JOB.received_at, JOB.downstream_repo).where(
            tx.among([JOB[name] for name in SAME_JOB], sorted(same))
        )
        for row in await tx.rows(query):
            tx.stale_days.add((row["received_at"] // DAY, row["downstream_repo"].casefold()))
    told = sorted({identifier for row in rows if (identifier := row.get("dispatch_id"))})
    if told:
        query = sa.select(TOLD.created_at, TOLD.backend_key)
        for row in await tx.rows(query.where(TOLD.id.in_(told), TOLD.state.in_(list(ENDS)))):
            tx.stale_days.add((row["created_at"] // DAY, row["backend_key"]))


async def touch_dispatches(tx: Transaction, rows: Iterable[Row]) -> None:
    """Mark the days that dispatches (id, backend_key, created_at) and the jobs of them count for."""
    identifiers = []
    for row in rows:
        tx.stale_days.add((row["created_at"] // DAY, row["backend_key"]))
        identifiers.append(row["id"])
    if identifiers:
        query = sa.select(JOB.received_at, JOB.downstream_repo).where(JOB.dispatch_id.in_(identifiers))
        for row in await tx.rows(query):
            tx.stale_days.add((row["received_at"] // DAY, row["downstream_repo"].casefold()))


async def mark(tx: Transaction, places: Collection[Place]) -> None:
    """Write down which days are stale."""
    insert = tx.insert(oot_stale_day)
    again = {"mark": insert.excluded.mark}
    # one order for all, so that two transactions never wait for each other
    rows = [
        {"day": day, "backend_key": backend, "mark": secrets.randbits(62)} for day, backend in sorted(places)
    ]
    await tx.run(insert.on_conflict_do_update(index_elements=["day", "backend_key"], set_=again), rows)


async def read(
    tx: Transaction, first: int, *, last: int | None = None, backends: Collection[str] | None = None
) -> list[Day]:
    """Return the days from `first` to `last`, of some backends or of all; what is stale is counted afresh."""
    stale = await stale_days(tx, first, last=last, backends=backends)
    kept = sa.select(*READ).where(oot_day.c.day >= first)
    if last is not None:
        kept = kept.where(oot_day.c.day <= last)
    if backends is not None:
        kept = kept.where(oot_day.c.backend_key.in_(sorted(backends)))
    found: list[Day] = []
    for part in (await tx.run(kept)).partitions(SLICE):
        found += [one for one in map(_day, part) if (one.day, one.key) not in stale]
        await asyncio.sleep(0)  # a long window is read without keeping other requests waiting
    return found + await count(tx, list(stale))


async def fingerprint(tx: Transaction, first: int, last: int) -> tuple[int, int]:
    """Return what is another as soon as any day of a span is written anew."""
    at = oot_day.c.written_at
    query = sa.select(sa.func.count().label("days"), sa.func.coalesce(sa.func.sum(at), 0).label("sum"))
    found = await tx.row(query.where(oot_day.c.day >= first, oot_day.c.day <= last))
    return (found["days"], int(found["sum"])) if found else (0, 0)


async def marks(tx: Transaction, first: int, last: int, stale: dict[Place, int]) -> Marks:
    """Return what is another as soon as any day of a backend is, for each that did anything in a span of days."""
    key, at = oot_day.c.backend_key, oot_day.c.written_at
    query = sa.select(key, sa.func.count().label("days"), sa.func.sum(at).label("sum")).where(
        oot_day.c.day >= first, oot_day.c.day <= last
    )
    rows = await tx.rows(query.group_by(key))
    kept = {row["backend_key"]: (row["days"], int(row["sum"])) for row in rows}
    marked: dict[str, set[Any]] = {key: set() for key in kept}
    for (day, backend), mark_ in stale.items():
        marked.setdefault(backend, set()).add((day, mark_))
    return {key: (kept.get(key), frozenset(mine)) for key, mine in marked.items()}


async def stale_days(
    tx: Transaction,
    first: int = 0,
    *,
    last: int | None = None,
    backends: Collection[str] | None = None,
    limit: int | None = None,
) -> dict[Place, int]:
    """Return the stale days with the mark of their last change, the oldest first."""
    query = sa.select(oot_stale_day).where(oot_stale_day.c.day >= first)
    if last is not None:
        query = query.where(oot_stale_day.c.day <= last)
    if backends is not None:
        query = query.where(oot_stale_day.c.backend_key.in_(sorted(backends)))
    query = query.order_by(oot_stale_day.c.day, oot_stale_day.c.backend_key).limit(limit)
    return {(row["day"], row["backend_key"]): row["mark"] for row in await tx.rows(query)}


async def count(tx: Transaction, places: Sequence[Place]) -> list[Day]:
    """Return what backends did on some days, as their rows say."""
    backends_on = defaultdict(list)
    for day, backend in places:
        backends_on[day].append(backend)
    found: list[Day] = []
    for day, backends in backends_on.items():
        counting = Counting()
        async for jobs, silent in counted.slices(tx, backends, since=day * DAY, until=(day + 1) * DAY - 1):
            counting.add(jobs, silent)
        found += counting.days()
    return found


async def since(tx: Transaction, at: int, backends: Collection[str]) -> dict[str, Lately]:
    """Return what backends did since a time that is not the beginning of a day, by case folded name."""
    found = {key: Lately(oldest=tx.now, days=[]) for key in backends}
    counting = Counting()
    async for jobs, silent in counted.slices(tx, backends, since=at, until=tx.now):
        times_of = [(row["downstream_repo"], row["received_at"]) for row in jobs]
        times_of += [(row["backend"], row["created_at"]) for row in silent]
        for name, when in times_of:
            mine = found[name.casefold()]
            mine.oldest = min(mine.oldest, when)
        counting.add(jobs, silent)
    for one in counting.days():
        found[one.key].days.append(one)
    return found


async def last_heard(
    tx: Transaction, backends: Collection[str], *, hidden: Collection[str]
) -> dict[str, int]:
    """Return when backends (case folded) last reported, leaving out upstreams that may not be shown."""
    if not backends:
        return {}
    key, at = oot_day.c.backend_key, sa.func.max(oot_day.c.last_at).label("at")
    query = sa.select(key, at).where(key.in_(sorted(backends)), oot_day.c.last_at > 0)
    if hidden:
        query = query.where(oot_day.c.upstream_key.not_in(sorted(hidden)))
    return {row["backend_key"]: row["at"] for row in await tx.rows(query.group_by(key))}


async def write(tx: Transaction, place: Place, marked: int, found: Iterable[Day]) -> bool:
    """Keep a day as counted when it bore this mark; returns False when it was marked again meanwhile."""
    day, backend = place
    same = (
        oot_stale_day.c.day == day,
        oot_stale_day.c.backend_key == backend,
        oot_stale_day.c.mark == marked,
    )
    if not (await tx.run(sa.delete(oot_stale_day).where(*same))).rowcount:
        return False
    await tx.run(sa.delete(oot_day).where(oot_day.c.day == day, oot_day.c.backend_key == backend))
    rows = [_row(one, tx.now) for one in found]
    if rows:
        await tx.run(sa.insert(oot_day), rows)
    return True


def _row(one: Day, now: int) -> Row:
    row: Row = {name: getattr(one.tally, name) for name in COUNTS}
    row |= {name: histogram.to_bytes(getattr(one.tally, name)) for name in HISTOGRAMS}
    row |= {"backend_key": one.key, "upstream_key": one.upstream, "event_type": one.event}
    row |= {"day": one.day, "backend": one.backend, "level": one.level, "hours": one.hours}
    return row | {"last_at": one.tally.last_at, "written_at": now}


def _day(row: Sequence[Any]) -> Day:
    """Return a day from the columns of READ."""
    day, backend, level, upstream, event, hours, last_at, *added = row
    packed, counts = added[: len(HISTOGRAMS)], added[len(HISTOGRAMS) :]
    tally = Tally(
        **dict(zip(HISTOGRAMS, map(histogram.from_bytes, packed), strict=True)),
        **dict(zip(COUNTS, counts, strict=True)),
        last_at=last_at,
    )
    return Day(
        day=day, backend=backend, level=level, upstream=upstream, event=event, tally=tally, hours=hours
    )
