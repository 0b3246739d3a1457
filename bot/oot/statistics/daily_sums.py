"""Daily sums of backends: which days a change concerns, how they are counted, read and cached."""

from __future__ import annotations

import asyncio
import functools
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NotRequired, TypeVar, cast

import sqlalchemy as sa
from aiohttp import web

from bot.db.rows import fields
from bot.db.statements import Statement
from bot.db.transaction import Slot, among_given
from bot.oot.results.tables import ATTEMPTS, CountedDispatch, CountedJob, oot_dispatch, oot_workflow_job
from bot.oot.statistics import countable_jobs, histogram
from bot.oot.statistics.stats import DAY, ENDS, Day, DayCounter, Tally
from bot.oot.statistics.tables import COUNTS, HISTOGRAMS, DayOfBackend, oot_day, oot_failure_kind
from bot.queue import sums
from bot.queue.sums import Sum

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

    from bot.context import Context
    from bot.db.transaction import Changed, Transaction
    from bot.queue.sums import CountedSum

BackendDay = tuple[int, str]  # a day, a backend's case folded name
Fingerprints = dict[str, object]  # by backend: changes as soon as any of its stored days does
SLICE = 100  # days made at a time
DELAY = 5.0  # seconds in which further changes of a day are awaited
PLACE = tuple(fields(DayOfBackend))
READ_COLUMNS = tuple(oot_day.c[name] for name in (*PLACE, "hours", "last_at", *HISTOGRAMS, *COUNTS))
CHANGED_DAYS: Slot[set[BackendDay]] = Slot("changed days", set)
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
BACKENDS = Sum(
    name="backends",
    tables=(oot_day,),
    group=("backend_key",),
    count="bot.oot.statistics.daily_sums:count_day",
    after="bot.oot.statistics.countable_jobs:keep_names",
    delay=DELAY,
    pruned=False,
)
KIND = oot_failure_kind.c
T = TypeVar("T")
ENTRIES_MOST = 24  # kinds of sums in the cache


class _ChangedDispatch(CountedDispatch):
    state_before: NotRequired[str]


@dataclass(kw_only=True)
class Recent:
    """What one backend did since some time."""

    oldest: int  # epoch milliseconds of the oldest row
    days: list[Day]


@dataclass(frozen=True, kw_only=True)
class _Entry(Generic[T]):
    """Sums over a span of days, and the fingerprint of the rows behind them."""

    fingerprint: object  # of all backends
    fingerprints: Fingerprints  # of each
    changing: set[str]  # backends whose rows changed since they were counted: good for one request
    sums: dict[str, T]


async def note_changed(tx: Transaction, changed: Changed) -> None:
    """Before a commit: recount the days that changed rows count for."""
    if jobs := changed.get("oot_workflow_job"):
        await _note_jobs(tx, cast("Sequence[CountedJob]", jobs))
    dispatches = cast("Sequence[_ChangedDispatch]", changed.get("oot_dispatch", ()))
    ended = [row for row in dispatches if {row["state"], row.get("state_before")} & ENDS.keys()]
    await _note_dispatches(tx, ended)
    days = tx.empty(CHANGED_DAYS)
    recount_days(tx, days)


def recount_days(tx: Transaction, places: Iterable[BackendDay]) -> None:
    """Request a recount of days of backends."""
    sums.request(tx, BACKENDS, (sums.SumPlace((backend,), day) for day, backend in places))


async def pending_days(
    tx: Transaction, first: int, *, last: int | None = None, backends: Collection[str] | None = None
) -> set[BackendDay]:
    """Return the days that await a recount, of some backends or of all."""
    return {
        (day, backend)
        for (backend,), day in await sums.pending(tx, BACKENDS)
        if day >= first and (last is None or day <= last) and (backends is None or backend in backends)
    }


async def read_days(
    tx: Transaction, first: int, *, last: int | None = None, backends: Collection[str] | None = None
) -> list[Day]:
    """Return the days from `first` to `last` of some backends or of all; changed days are counted from their rows."""
    changed = await pending_days(tx, first, last=last, backends=backends)
    stored = sa.select(*READ_COLUMNS).where(oot_day.c.day >= first)
    if last is not None:
        stored = stored.where(oot_day.c.day <= last)
    if backends is not None:
        stored = stored.where(oot_day.c.backend_key.in_(sorted(backends)))
    read: list[Day] = []
    rows = (await tx.run(stored)).all()
    for start in range(0, len(rows), SLICE):
        days = map(_day, rows[start : start + SLICE])
        read += [day for day in days if (day.day, day.backend_key) not in changed]
        await asyncio.sleep(0)  # other requests get their turn while a long window is read
    return read + await count_days(tx, sorted(changed))


async def read_fingerprint(tx: Transaction, first: int, last: int) -> tuple[int, int]:
    """Return a value that changes as soon as any day of a span is rewritten."""
    query = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(oot_day.c.written_at), 0))
    days, written = (await tx.run(query.where(oot_day.c.day >= first, oot_day.c.day <= last))).one()
    return days, int(written)


async def read_fingerprints(tx: Transaction, first: int, last: int) -> Fingerprints:
    """Return, for each backend with stored days in a span, a value that changes as soon as any of them does."""
    key = oot_day.c.backend_key
    query = sa.select(key, sa.func.count(), sa.func.sum(oot_day.c.written_at)).where(
        oot_day.c.day >= first, oot_day.c.day <= last
    )
    return {backend: (days, int(written)) for backend, days, written in await tx.run(query.group_by(key))}


async def count_days(tx: Transaction, places: Sequence[BackendDay]) -> list[Day]:
    """Count from its rows what each backend did on a day."""
    backends_on = defaultdict(list)
    for day, backend in places:
        backends_on[day].append(backend)
    counted: list[Day] = []
    for day, backends in backends_on.items():
        counter = DayCounter()
        async for jobs, silent in countable_jobs.read_slices(
            tx, backends, since=day * DAY, until=(day + 1) * DAY - 1
        ):
            counter.add(jobs, silent)
        counted += counter.days()
    return counted


async def read_since(tx: Transaction, at: int, backends: Collection[str]) -> dict[str, Recent]:
    """Return what backends did since a time within a day, by case folded name."""
    recent = {key: Recent(oldest=tx.now, days=[]) for key in backends}
    counter = DayCounter()
    async for jobs, silent in countable_jobs.read_slices(tx, backends, since=at, until=tx.now):
        times_of = [(row["downstream_repo"], row["received_at"]) for row in jobs]
        times_of += [(row["backend"], row["created_at"]) for row in silent]
        for name, when in times_of:
            mine = recent[name.casefold()]
            mine.oldest = min(mine.oldest, when)
        counter.add(jobs, silent)
    for day in counter.days():
        recent[day.backend_key].days.append(day)
    return recent


async def last_reports(
    tx: Transaction, backends: Collection[str], *, hidden: Collection[str]
) -> dict[str, int]:
    """Return when each backend (case folded) last reported, leaving out hidden upstreams."""
    if not backends:
        return {}
    key = oot_day.c.backend_key
    query = sa.select(key, sa.func.max(oot_day.c.last_at)).where(
        key.in_(sorted(backends)), oot_day.c.last_at > 0
    )
    if hidden:
        query = query.where(oot_day.c.upstream_key.not_in(sorted(hidden)))
    return dict((await tx.run(query.group_by(key))).all())


async def count_day(context: Context, place: sums.SumPlace) -> CountedSum:
    """Return the rows of a backend's day: one for each upstream repository and kind of event."""
    async with context.store.read() as tx:
        days = await count_days(tx, [(place.day, *place.group)])
        return {oot_day: [as_row(day, tx.now) for day in days]}


def as_row(day: Day, now: int) -> dict[str, object]:
    """Return the row of a day, without day and backend."""
    row: dict[str, object] = {name: getattr(day.tally, name) for name in COUNTS}
    row |= {name: histogram.to_bytes(getattr(day.tally, name)) for name in HISTOGRAMS}
    row |= {name: getattr(day, name) for name in PLACE if name not in {"day", "backend_key"}}
    return row | {"hours": day.hours, "last_at": day.tally.last_at, "written_at": now}


async def store_failure_kinds(tx: Transaction, kinds: Mapping[str, str | None]) -> None:
    """Store the kind of some jobs' failures by job key, None where no log says; days that change are recounted."""
    keys = sorted(kinds)
    known = {
        row.job_key: row.kind
        for row in await tx.run(sa.select(KIND.job_key, KIND.kind).where(KIND.job_key.in_(keys)))
    }
    changed = [key for key in keys if known.get(key) != kinds[key]]
    if not changed:
        return
    await tx.run(sa.delete(oot_failure_kind).where(KIND.job_key.in_(changed)))
    if rows := [{"job_key": key, "kind": kinds[key]} for key in changed if kinds[key]]:
        await tx.run(sa.insert(oot_failure_kind), rows)
    days = await tx.run(sa.select(JOB.received_at, JOB.downstream_repo).where(JOB.job_key.in_(changed)))
    recount_days(tx, {(row.received_at // DAY, row.downstream_repo.casefold()) for row in days})


class DaySumsCache:
    """Sums by backend; each is made again once any row behind it has changed."""

    def __init__(self) -> None:
        self._of_days: OrderedDict[Hashable, _Entry[Any]] = OrderedDict()
        self._since: OrderedDict[Hashable, dict[str, tuple[object, int, Any]]] = OrderedDict()
        self._combined: OrderedDict[Hashable, dict[str, tuple[tuple[object, ...], Any]]] = OrderedDict()

    async def of_days(
        self, tx: Transaction, kind: Hashable, span: tuple[int, int], make: Callable[[Sequence[Day]], T]
    ) -> dict[str, T]:
        """Return the sums over a span of days (first, last) by backend (case folded).

        `kind` distinguishes sums over the same days: it holds everything that `make` depends on.
        """
        first, last = span
        changing = {backend for _, backend in await pending_days(tx, first, last=last)}
        fingerprint = await read_fingerprint(tx, first, last)
        known: _Entry[T] | None = self._of_days.get((kind, span))
        same = known is not None and known.fingerprint == fingerprint
        if known is None or not same or changing or known.changing:
            now = known.fingerprints if known and same else await read_fingerprints(tx, first, last)
            sums = _unchanged(known, now, changing) if known else {}
            changed = (now.keys() | changing) - sums.keys()
            parts: dict[str, list[Day]] = {key: [] for key in changed}
            for day in await read_days(tx, first, last=last, backends=None if not sums else changed):
                parts.setdefault(day.backend_key, []).append(day)
            for key, part in parts.items():
                sums[key] = make(part)
            known = _Entry(fingerprint=fingerprint, fingerprints=now, changing=changing, sums=sums)
        _store(self._of_days, (kind, span), known)
        return known.sums

    async def since(
        self, tx: Transaction, kind: Hashable, at: int, make: Callable[[Sequence[Day]], T]
    ) -> dict[str, T]:
        """Return the sums since a moment; they are also made again once a row is older than that."""
        first, last = at // DAY, tx.now // DAY
        changing = {backend for _, backend in await pending_days(tx, first, last=last)}
        now: Fingerprints = dict.fromkeys(changing) | await read_fingerprints(tx, first, last)
        known: dict[str, tuple[object, int, T]] = self._since.get(kind, {})
        sums = {
            key: known[key]
            for key, fingerprint in now.items()
            if key not in changing and key in known and known[key][0] == fingerprint and known[key][1] >= at
        }
        changed = now.keys() - sums.keys()
        for key, recent in (await read_since(tx, at, changed) if changed else {}).items():
            sums[key] = (None if key in changing else now[key], recent.oldest, make(recent.days))
        _store(self._since, kind, sums)
        return {key: made for key, (_, _, made) in sums.items()}

    def combined(
        self,
        kind: Hashable,
        parts: Mapping[str, tuple[object, ...]],
        make: Callable[..., T],
        *,
        valid: Hashable,
    ) -> dict[str, T]:
        """Combine each backend's parts with `make`, or return the last result where they are the same.

        `valid` stands for whatever else `make` depends on: when it changes, everything is made again.
        """
        known = self._combined.get(kind, {})
        entries = {
            key: known[key]
            if key in known and known[key][0] == (valid, mine)
            else ((valid, mine), make(*mine))
            for key, mine in parts.items()
        }
        _store(self._combined, kind, entries)
        return {key: cast("T", made) for key, (_, made) in entries.items()}


DAY_SUMS: web.AppKey[DaySumsCache] = web.AppKey("day_sums", DaySumsCache)


async def _note_jobs(tx: Transaction, rows: Sequence[CountedJob]) -> None:
    """Note the days that jobs count for: their own, and those of rows they overtake and of dispatches no longer silent.

    They overtake earlier attempts, and a relay's report of the same attempt.
    """
    days = tx.slot(CHANGED_DAYS)
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
    days = tx.slot(CHANGED_DAYS)
    days |= {(row["created_at"] // DAY, row["backend_key"]) for row in rows}
    jobs = await tx.run(JOBS_OF, {"ids": [row["id"] for row in rows]})
    days |= {(at // DAY, backend.casefold()) for at, backend in jobs}


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


def _unchanged(known: _Entry[T], now: Fingerprints, changing: set[str]) -> dict[str, T]:
    """Return the sums of backends none of whose rows has changed."""
    return {
        key: known.sums[key]
        for key, fingerprint in now.items()
        if key not in changing | known.changing and known.fingerprints.get(key) == fingerprint
    }


def _store(entries: OrderedDict[Hashable, Any], kind: Hashable, value: object) -> None:
    entries[kind] = value
    entries.move_to_end(kind)
    while len(entries) > ENTRIES_MOST:
        entries.popitem(last=False)
