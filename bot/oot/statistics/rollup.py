"""Daily sums of backends, stored in oot_day: reads, writes, and the task that recounts stale days.

A transaction that changes rows marks their days stale (`mark_stale`); the task `rollup` recounts those. Until then a
stale day is counted from its rows on each read, so reads are always exact, whenever that task runs.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast

import sqlalchemy as sa

from bot.db.statements import Statement
from bot.db.transaction import Slot, among_given
from bot.oot.results.tables import ATTEMPTS, oot_dispatch, oot_workflow_job
from bot.oot.statistics import countable_jobs, histogram
from bot.oot.statistics.days import DAY, Day, DayCounter
from bot.oot.statistics.stats import ENDS, Tally
from bot.oot.statistics.tables import COUNTS, HISTOGRAMS, oot_day, oot_stale_day

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bot.context import Context
    from bot.db.transaction import Changed, Transaction
    from bot.queue.tasks import Task

Place = tuple[int, str]  # a day, a backend's case folded name
Fingerprints = dict[str, object]  # by backend: changes as soon as any of its days does
BATCH = 20  # days recounted at a time
SLICE = 100  # days made at a time
_NAMES = ("day", "backend", "level", "upstream_key", "event_type", "hours", "last_at")
READ = tuple(oot_day.c[name] for name in (*_NAMES, *HISTOGRAMS, *COUNTS))
STALE: Slot[set[Place]] = Slot("stale days", set)
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


class _ChangedJob(TypedDict):
    run_id: str
    job_name: str
    workflow_name: str
    delivery_id: str
    downstream_repo: str
    received_at: int
    dispatch_id: NotRequired[str | None]


class _ChangedDispatch(TypedDict):
    id: str
    backend_key: str
    created_at: int
    state: str
    state_before: NotRequired[str]


@dataclass(kw_only=True)
class Recent:
    """What one backend did since some time."""

    oldest: int  # epoch milliseconds of the oldest row
    days: list[Day]


async def run(context: Context, _task: Task) -> None:
    """Recount every stale day, the oldest first; one that changes meanwhile stays stale until the next run."""
    while True:
        async with context.store.read() as tx:
            stale = await stale_days(tx, limit=BATCH)
            found = await count(tx, list(stale))
        if not stale:
            return
        written = 0
        async with context.store.transaction() as tx:
            for place, mark in sorted(stale.items()):
                written += await write(tx, place, mark, [one for one in found if (one.day, one.key) == place])
        if not written:  # all of them keep changing
            return


async def mark_stale(tx: Transaction, changed: Changed) -> None:
    """Before a commit: mark the days that changed rows count for."""
    if jobs := changed.get("oot_workflow_job"):
        await _note_jobs(tx, cast("Sequence[_ChangedJob]", jobs))
    dispatches = cast("Sequence[_ChangedDispatch]", changed.get("oot_dispatch", ()))
    ended = [row for row in dispatches if {row["state"], row.get("state_before")} & ENDS.keys()]
    await _note_dispatches(tx, ended)
    if places := tx.empty(STALE):
        await mark_days(tx, places)


async def _note_jobs(tx: Transaction, rows: Sequence[_ChangedJob]) -> None:
    """Note the days that jobs count for: their own, those of the rows they overtake, that of a silent dispatch.

    They overtake earlier attempts, and what a relay reported on the same one.
    """
    stale = tx.slot(STALE)
    stale |= {(row["received_at"] // DAY, row["downstream_repo"].casefold()) for row in rows}
    same = {(row["run_id"], row["job_name"], row["workflow_name"], row["delivery_id"]) for row in rows}
    overtaken = await tx.run(_overtaken(sqlite=tx.sqlite), {"same": tx.keys(sorted(same))})
    stale |= {(at // DAY, backend.casefold()) for at, backend in overtaken}
    dispatches = sorted({dispatch for row in rows if (dispatch := row.get("dispatch_id"))})
    if dispatches:
        stale |= {(at // DAY, key) for at, key in await tx.run(SILENT, {"ids": dispatches})}


@functools.cache
def _overtaken(*, sqlite: bool) -> Statement:
    return Statement(
        sa.select(JOB.received_at, JOB.downstream_repo).where(among_given(SAME_JOB, "same", sqlite=sqlite))
    )


async def _note_dispatches(tx: Transaction, rows: Sequence[_ChangedDispatch]) -> None:
    """Note the days that dispatches and their jobs count for."""
    if not rows:
        return
    stale = tx.slot(STALE)
    stale |= {(row["created_at"] // DAY, row["backend_key"]) for row in rows}
    jobs = await tx.run(JOBS_OF, {"ids": [row["id"] for row in rows]})
    stale |= {(at // DAY, backend.casefold()) for at, backend in jobs}


async def mark_days(tx: Transaction, places: Collection[Place]) -> None:
    """Mark days as stale."""
    # one order for all, so that two transactions never wait for each other
    rows = [
        {"day": day, "backend_key": backend, "mark": secrets.randbits(62)} for day, backend in sorted(places)
    ]
    await tx.upsert(oot_stale_day, rows, replaced=("mark",))


async def read(
    tx: Transaction, first: int, *, last: int | None = None, backends: Collection[str] | None = None
) -> list[Day]:
    """Return the days from `first` to `last`, of some backends or of all; stale ones are recounted."""
    stale = await stale_days(tx, first, last=last, backends=backends)
    stored = sa.select(*READ).where(oot_day.c.day >= first)
    if last is not None:
        stored = stored.where(oot_day.c.day <= last)
    if backends is not None:
        stored = stored.where(oot_day.c.backend_key.in_(sorted(backends)))
    found: list[Day] = []
    rows = (await tx.run(stored)).all()
    for start in range(0, len(rows), SLICE):
        days = map(_day, rows[start : start + SLICE])
        found += [one for one in days if (one.day, one.key) not in stale]
        await asyncio.sleep(0)  # other requests get their turn while a long window is read
    return found + await count(tx, list(stale))


async def fingerprint(tx: Transaction, first: int, last: int) -> tuple[int, int]:
    """Return a value that changes as soon as any day of a span is rewritten."""
    query = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(oot_day.c.written_at), 0))
    days, written = (await tx.run(query.where(oot_day.c.day >= first, oot_day.c.day <= last))).one()
    return days, int(written)


async def fingerprints(tx: Transaction, first: int, last: int, stale: dict[Place, int]) -> Fingerprints:
    """Return a value for each backend with data in a span of days that changes as soon as any day of it does."""
    key = oot_day.c.backend_key
    query = sa.select(key, sa.func.count(), sa.func.sum(oot_day.c.written_at)).where(
        oot_day.c.day >= first, oot_day.c.day <= last
    )
    stored = {backend: (days, int(written)) for backend, days, written in await tx.run(query.group_by(key))}
    marked: dict[str, set[tuple[int, int]]] = {backend: set() for backend in stored}
    for (day, backend), mark in stale.items():
        marked.setdefault(backend, set()).add((day, mark))
    return {backend: (stored.get(backend), frozenset(marks)) for backend, marks in marked.items()}


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
    return {(day, backend): mark for day, backend, mark in await tx.run(query)}


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
        found[one.key].days.append(one)
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


STALE_DAY = oot_stale_day.c
OF_DAY: sa.BindParameter[int] = sa.bindparam("of_day")
OF_BACKEND: sa.BindParameter[str] = sa.bindparam("of_backend")
UNMARK = Statement(
    sa.delete(oot_stale_day).where(
        STALE_DAY.day == OF_DAY, STALE_DAY.backend_key == OF_BACKEND, STALE_DAY.mark == sa.bindparam("mark")
    )
)
CLEAR = Statement(sa.delete(oot_day).where(oot_day.c.day == OF_DAY, oot_day.c.backend_key == OF_BACKEND))
INSERT = Statement(sa.insert(oot_day))


async def write(tx: Transaction, place: Place, mark: int, found: Iterable[Day]) -> bool:
    """Store a day as counted under this mark; returns False when it was marked again meanwhile."""
    day, backend = place
    here = {"of_day": day, "of_backend": backend}
    if not (await tx.run(UNMARK, here | {"mark": mark})).rowcount:
        return False
    await tx.run(CLEAR, here)
    rows = [_row(one, tx.now) for one in found]
    if rows:
        await tx.run(INSERT, rows)
    return True


def _row(one: Day, now: int) -> dict[str, object]:
    row: dict[str, object] = {name: getattr(one.tally, name) for name in COUNTS}
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
