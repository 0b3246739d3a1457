"""Daily sums of backends, stored in oot_day: which days a change concerns, how they are counted and read.

A day that is to be counted again is counted from its rows on each read, so reads are always exact.
"""

from __future__ import annotations

import asyncio
import functools
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NotRequired, cast

import sqlalchemy as sa

from bot.db.rows import fields
from bot.db.statements import Statement
from bot.db.transaction import Slot, among_given
from bot.oot.results.tables import (
    ATTEMPTS,
    CountedDispatch,
    CountedJob,
    oot_dispatch,
    oot_workflow_job,
)
from bot.oot.statistics import histogram
from bot.oot.statistics.days import DAY, Day, DayCounter
from bot.oot.statistics.stats import ENDS, Tally
from bot.oot.statistics.store import countable_jobs
from bot.oot.statistics.tables import COUNTS, HISTOGRAMS, DayOfBackend, oot_day
from bot.queue import sums
from bot.queue.sums import Sum

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bot.context import Context
    from bot.db.transaction import Changed, Transaction
    from bot.queue.sums import Counted

Place = tuple[int, str]  # a day, a backend's case folded name
Fingerprints = dict[str, object]  # by backend: changes as soon as any of its stored days does
SLICE = 100  # days made at a time
DELAY = 5.0  # seconds in which further changes of a day are awaited
PLACE = tuple(fields(DayOfBackend))
READ = tuple(oot_day.c[name] for name in (*PLACE, "hours", "last_at", *HISTOGRAMS, *COUNTS))
CHANGED: Slot[set[Place]] = Slot("changed days", set)
JOB, DISPATCH = oot_workflow_job.c, oot_dispatch.c
SILENT = Statement(
    sa.select(DISPATCH.created_at, DISPATCH.backend_key).where(
        DISPATCH.id.in_(sa.bindparam("ids", expanding=True)), DISPATCH.state.in_(list(ENDS))
    )
)
JOBS_OF = Statement(
    sa.select(JOB.received_at, JOB.downstream_repo).where(
        JOB.dispatch_id.in_(sa.bindparam("ids", expanding=True))
    )
)
SAME_JOB = [JOB[name] for name in ATTEMPTS[:-1]]


class _ChangedDispatch(CountedDispatch):
    state_before: NotRequired[str]


@dataclass(kw_only=True)
class Recent:
    """What one backend did since some time."""

    oldest: int  # epoch milliseconds of the oldest row
    days: list[Day]


async def note_changed(tx: Transaction, changed: Changed) -> None:
    """Before a commit: have the days counted again that changed rows count for."""
    if jobs := changed.get("oot_workflow_job"):
        await _note_jobs(tx, cast("Sequence[CountedJob]", jobs))
    dispatches = cast("Sequence[_ChangedDispatch]", changed.get("oot_dispatch", ()))
    ended = [row for row in dispatches if {row["state"], row.get("state_before")} & ENDS.keys()]
    await _note_dispatches(tx, ended)
    days = tx.empty(CHANGED)
    request(tx, days)


async def _note_jobs(tx: Transaction, rows: Sequence[CountedJob]) -> None:
    """Note the days that jobs count for: their own, those of the rows they overtake, that of a silent dispatch.

    They overtake earlier attempts, and what a relay reported on the same one.
    """
    days = tx.slot(CHANGED)
    days |= {(row["received_at"] // DAY, row["downstream_repo"].casefold()) for row in rows}
    same = {(row["run_id"], row["job_name"], row["workflow_name"], row["delivery_id"]) for row in rows}
    overtaken = await tx.run(_overtaken(sqlite=tx.sqlite), {"same": tx.keys(sorted(same))})
    days |= {(at // DAY, backend.casefold()) for at, backend in overtaken}
    dispatches = sorted({dispatch for row in rows if (dispatch := row.get("dispatch_id"))})
    if dispatches:
        days |= {(at // DAY, key) for at, key in await tx.run(SILENT, {"ids": dispatches})}


@functools.cache
def _overtaken(*, sqlite: bool) -> Statement:
    return Statement(
        sa.select(JOB.received_at, JOB.downstream_repo).where(among_given(SAME_JOB, "same", sqlite=sqlite))
    )


async def _note_dispatches(tx: Transaction, rows: Sequence[_ChangedDispatch]) -> None:
    """Note the days that dispatches and their jobs count for."""
    if not rows:
        return
    days = tx.slot(CHANGED)
    days |= {(row["created_at"] // DAY, row["backend_key"]) for row in rows}
    jobs = await tx.run(JOBS_OF, {"ids": [row["id"] for row in rows]})
    days |= {(at // DAY, backend.casefold()) for at, backend in jobs}


def request(tx: Transaction, places: Iterable[Place]) -> None:
    """Have days of backends counted again."""
    sums.request(tx, BACKENDS, (sums.Place((backend,), day) for day, backend in places))


async def pending(
    tx: Transaction, first: int, *, last: int | None = None, backends: Collection[str] | None = None
) -> set[Place]:
    """Return the days that are to be counted again, of some backends or of all."""
    return {
        (day, backend)
        for (backend,), day in await sums.pending(tx, BACKENDS)
        if day >= first and (last is None or day <= last) and (backends is None or backend in backends)
    }


async def read_days(
    tx: Transaction, first: int, *, last: int | None = None, backends: Collection[str] | None = None
) -> list[Day]:
    """Return the days from `first` to `last`, of some backends or of all; changed ones are counted from their rows."""
    changed = await pending(tx, first, last=last, backends=backends)
    stored = sa.select(*READ).where(oot_day.c.day >= first)
    if last is not None:
        stored = stored.where(oot_day.c.day <= last)
    if backends is not None:
        stored = stored.where(oot_day.c.backend_key.in_(sorted(backends)))
    found: list[Day] = []
    rows = (await tx.run(stored)).all()
    for start in range(0, len(rows), SLICE):
        days = map(_day, rows[start : start + SLICE])
        found += [one for one in days if (one.day, one.backend_key) not in changed]
        await asyncio.sleep(0)  # other requests get their turn while a long window is read
    return found + await count(tx, sorted(changed))


async def fingerprint(tx: Transaction, first: int, last: int) -> tuple[int, int]:
    """Return a value that changes as soon as any day of a span is rewritten."""
    query = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(oot_day.c.written_at), 0))
    days, written = (await tx.run(query.where(oot_day.c.day >= first, oot_day.c.day <= last))).one()
    return days, int(written)


async def fingerprints(tx: Transaction, first: int, last: int) -> Fingerprints:
    """Return a value for each backend with stored days in a span that changes as soon as any of them does."""
    key = oot_day.c.backend_key
    query = sa.select(key, sa.func.count(), sa.func.sum(oot_day.c.written_at)).where(
        oot_day.c.day >= first, oot_day.c.day <= last
    )
    return {backend: (days, int(written)) for backend, days, written in await tx.run(query.group_by(key))}


async def count(tx: Transaction, places: Sequence[Place]) -> list[Day]:
    """Count what backends did on some days from their rows."""
    backends_on = defaultdict(list)
    for day, backend in places:
        backends_on[day].append(backend)
    found: list[Day] = []
    for day, backends in backends_on.items():
        counter = DayCounter()
        async for jobs, silent in countable_jobs.slices(
            tx, backends, since=day * DAY, until=(day + 1) * DAY - 1
        ):
            counter.add(jobs, silent)
        found += counter.days()
    return found


async def since(tx: Transaction, at: int, backends: Collection[str]) -> dict[str, Recent]:
    """Return what backends did since a time that is not the beginning of a day, by case folded name."""
    found = {key: Recent(oldest=tx.now, days=[]) for key in backends}
    counter = DayCounter()
    async for jobs, silent in countable_jobs.slices(tx, backends, since=at, until=tx.now):
        times_of = [(row["downstream_repo"], row["received_at"]) for row in jobs]
        times_of += [(row["backend"], row["created_at"]) for row in silent]
        for name, when in times_of:
            mine = found[name.casefold()]
            mine.oldest = min(mine.oldest, when)
        counter.add(jobs, silent)
    for one in counter.days():
        found[one.backend_key].days.append(one)
    return found


async def last_reports(
    tx: Transaction, backends: Collection[str], *, hidden: Collection[str]
) -> dict[str, int]:
    """Return when backends (case folded) last reported, leaving out upstreams that may not be shown."""
    if not backends:
        return {}
    key = oot_day.c.backend_key
    query = sa.select(key, sa.func.max(oot_day.c.last_at)).where(
        key.in_(sorted(backends)), oot_day.c.last_at > 0
    )
    if hidden:
        query = query.where(oot_day.c.upstream_key.not_in(sorted(hidden)))
    return dict((await tx.run(query.group_by(key))).all())


async def count_day(context: Context, place: sums.Place) -> Counted:
    """Return the rows of a day of a backend, which has one for each upstream repository and kind of event."""
    async with context.store.read() as tx:
        found = await count(tx, [(place.day, *place.group)])
        return {oot_day: [as_row(one, tx.now) for one in found]}


BACKENDS = Sum(
    name="backends",
    tables=(oot_day,),
    group=("backend_key",),
    count="bot.oot.statistics.store.rollup:count_day",
    after="bot.oot.statistics.store.job_names:keep_names",
    delay=DELAY,
    pruned=False,
)


def as_row(one: Day, now: int) -> dict[str, object]:
    """Return the row of a day, without day and backend."""
    row: dict[str, object] = {name: getattr(one.tally, name) for name in COUNTS}
    row |= {name: histogram.to_bytes(getattr(one.tally, name)) for name in HISTOGRAMS}
    row |= {name: getattr(one, name) for name in PLACE if name not in {"day", "backend_key"}}
    return row | {"hours": one.hours, "last_at": one.tally.last_at, "written_at": now}


def _day(row: Sequence[Any]) -> Day:
    """Return a day from the columns of READ."""
    place, (hours, last_at, *added) = row[: len(PLACE)], row[len(PLACE) :]
    packed, counts = added[: len(HISTOGRAMS)], added[len(HISTOGRAMS) :]
    tally = Tally(
        **dict(zip(HISTOGRAMS, map(histogram.from_bytes, packed), strict=True)),
        **dict(zip(COUNTS, counts, strict=True)),
        last_at=last_at,
    )
    return Day(**dict(zip(PLACE, place, strict=True)), hours=hours, tally=tally)
