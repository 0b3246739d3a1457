"""The health of backends: dispatches under way, numbers of a window of days, conditions that notices report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import sqlalchemy as sa

from bot.context import Resource
from bot.core import text
from bot.core.errors import Rejected
from bot.core.feature import Condition, ConditionSubject
from bot.db.rows import select
from bot.oot.allowlist import versions as allowlists
from bot.oot.results import dispatches, jobs
from bot.oot.results.dispatches import OPEN
from bot.oot.results.tables import AWAITED, UNFINISHED, DispatchRow, oot_dispatch, oot_workflow_job
from bot.oot.statistics import daily_sums, stats
from bot.oot.statistics.daily_sums import DaySumsCache
from bot.oot.statistics.stats import (
    DAY,
    HOUR,
    NO_TALLY,
    BackendStats,
    Day,
    Tally,
    add_tallies,
    daily_counts,
    daily_rates,
    find_turn,
    hourly_counts,
    recent_grades,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from bot.context import Context
    from bot.core.feature import ConditionScope
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.oot.allowlist.entry import Entry
    from bot.oot.statistics.stats import RatedCounts
    from bot.web.access import Hidden

DISPATCH, JOB = oot_dispatch.c, oot_workflow_job.c
GIVEN_UP = 7 * DAY  # milliseconds after which a dispatch no longer waits for a report
MOST_UNDERWAY = 2_000  # dispatches that are read
Way = Literal["held", "queued", "sending", "waiting", "running"]
WAYS: tuple[Way, ...] = ("held", "queued", "sending", "waiting", "running")
WAY_OF_STATE: dict[str, Way] = {"held": "held", "waiting": "queued", "pending": "sending", "sent": "waiting"}
CHANGING = 2  # newest days, cached apart because they change all the time
HOURLY = 8  # days before today that are compared by the hour, for what turned red or green
SPARK = 30  # days of the sparkline beside every backend
SILENT = 36 * HOUR  # milliseconds after which a backend counts as stale
NO_TREND = (None,) * (SPARK + 1)
CONDITION_DAYS = 1  # of the numbers that a notice has
WORKER_DAY_SUMS: Resource[_WorkerDaySums] = Resource("day sums", lambda _context: _WorkerDaySums())


@dataclass(frozen=True, kw_only=True)
class Underway:
    """A dispatch that is not finished."""

    row: DispatchRow
    way: Way
    since: int  # epoch milliseconds: when it was made, sent, or began to run


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Numbers of one backend from its days."""

    repo: str  # spelled as on its newest day
    level: int
    counts: bool  # whether it did anything in the window
    stats: BackendStats
    trend: tuple[float | None, ...]
    turned: str
    recent: str  # grade of the last 24 hours
    last_report_at: int  # 0: never


NO_FIGURES = Figures(
    repo="",
    level=0,
    counts=False,
    stats=BackendStats(),
    trend=NO_TREND,
    turned="",
    recent="none",
    last_report_at=0,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """Sums over some days of a backend; plain tuples, because very many are cached and compared."""

    newest: Day | None
    counted: tuple[Tally, ...]  # of the window: one, or none without runs
    daily: RatedCounts
    hourly: RatedCounts
    last_at: int


@dataclass(frozen=True, kw_only=True)
class _DayFilter:
    """Selects the days that count: those that may be shown, of some events or of any."""

    hidden: Hidden
    events: frozenset[str] | None = None

    def of(self, days: Iterable[Day]) -> list[Day]:
        """Return the days that count."""
        return [
            day
            for day in days
            if not self.hidden.has(day.upstream_key)
            and (self.events is None or day.event_type in self.events)
        ]


async def read_underway(tx: Transaction, *, hidden: Collection[str]) -> list[Underway]:
    """Return the dispatches under way, oldest first, without those of `hidden` upstreams (case folded)."""
    visible = sa.func.lower(DISPATCH.upstream_repo).not_in(sorted(hidden))
    recent = DISPATCH.created_at >= tx.now - GIVEN_UP
    waiting = select(DispatchRow, oot_dispatch).where(DISPATCH.state.in_(OPEN), AWAITED, recent, visible)
    rows = await tx.fetch(waiting.order_by(DISPATCH.created_at, DISPATCH.id).limit(MOST_UNDERWAY))
    underway = {row["id"]: _underway(row) for row in rows}
    began = await _read_running(tx)
    running = select(DispatchRow, oot_dispatch).where(DISPATCH.id.in_(sorted(began)), recent, visible)
    for row in await tx.fetch(running):
        underway[row["id"]] = Underway(row=row, way="running", since=began[row["id"]])
    return sorted(underway.values(), key=lambda dispatch: (dispatch.since, dispatch.row["id"]))


@dataclass(frozen=True, kw_only=True)
class Window:
    """The days that numbers cover: exactly 24 hours, or whole UTC days and today so far."""

    days: int
    now: int  # epoch milliseconds

    @property
    def first(self) -> int:
        """The first day."""
        return (self.now - self.days * DAY) // DAY

    @property
    def last(self) -> int:
        """Today."""
        return self.now // DAY

    @property
    def since(self) -> int:
        """Its beginning, epoch milliseconds."""
        return self.now - DAY if self.days == 1 else self.first * DAY


@dataclass(frozen=True, kw_only=True)
class Health:
    """One backend: its entry, its numbers of the window, and its trend."""

    repo: str
    level: int
    device: str | None
    shares_device: bool
    oncalls: tuple[str, ...]
    listed: bool
    stats: BackendStats
    trend: tuple[float | None, ...] = ()  # pass rates of the last days, oldest first
    turned: str = ""  # red or green, in the last 24 hours
    recent: str = "none"  # grade of the last 24 hours
    waiting: int = 0  # open pull requests that wait for it
    last_report_at: int | None = None
    stale: bool = False  # it has reported before, but not in the last 36 hours

    @property
    def label(self) -> str:
        """The name that people know it by."""
        return self.repo if self.shares_device else self.device or self.repo

    def matches(self, words: str) -> bool:
        """Whether each of these words occurs in its name or device."""
        names = f"{self.repo} {self.device or ''}".casefold()
        return all(word in names for word in words.casefold().split())

    def has_oncall(self, login: str) -> bool:
        """Whether this person (case folded) is on call for it; without a name every backend matches."""
        return not login or login in map(str.casefold, self.oncalls)


async def read_backends(
    tx: Transaction, hidden: Hidden, days: int, cache: DaySumsCache, events: frozenset[str] | None = None
) -> list[Health]:
    """Return every backend that is listed or reported in the window, from L4 down, worst first.

    Given `events`, only these count.
    """
    window = Window(days=days, now=tx.now)
    figures = await _figures(tx, _DayFilter(hidden=hidden, events=events), window, cache)
    allowlist = await allowlists.read_in_force(tx)
    entries = {entry.key: entry for entry in allowlist.entries} if allowlist else {}
    pulls = await dispatches.count_waiting_by_backend(tx, since=tx.now - GIVEN_UP, hidden=hidden.names)
    shown = {key: figures.get(key, NO_FIGURES) for key in entries}
    shown |= {key: figure for key, figure in figures.items() if figure.counts}
    silent = [key for key, figure in shown.items() if not figure.last_report_at]
    earlier = await daily_sums.last_reports(tx, silent, hidden=hidden.names)
    backends = [
        _health(entries.get(key), _with_last_report(figure, earlier.get(key)), window, pulls.get(key, 0))
        for key, figure in shown.items()
    ]
    return sorted(backends, key=_worst_first)


async def read_backend(
    tx: Transaction, hidden: Hidden, repo: str, window: Window
) -> tuple[Health, Sequence[Day]]:
    """Return one backend and its days. Raises Rejected (404) when it is not listed and has never reported."""
    key, known = repo.casefold(), await _days(tx, hidden, repo, window)
    allowlist = await allowlists.read_in_force(tx)
    entry = allowlist.find(repo) if allowlist else None
    if entry is None and not known:
        row = next(iter(await jobs.latest_jobs(tx, repo, since=0, limit=1, hidden=hidden.names)), None)
        if row is None:
            message = f"{repo[:200]} is not on the allowlist and has never reported"
            raise Rejected(404, "unknown_backend", message)
        figures = replace(NO_FIGURES, repo=row["downstream_repo"], level=row["downstream_repo_level"])
        return replace(_health(None, figures, window, 0), trend=(), stale=True), known
    pulls = await dispatches.count_waiting_by_backend(tx, since=tx.now - GIVEN_UP, hidden=hidden.names)
    day: tuple[Tally, ...] = ()
    if window.days == 1:
        day = _tallies(
            _DayFilter(hidden=hidden), (await daily_sums.read_since(tx, window.since, [key]))[key].days
        )
    figures = _figures_of_parts(window, None, _part(_DayFilter(hidden=hidden), window, known), day)
    if not figures.last_report_at:
        figures = _with_last_report(
            figures, (await daily_sums.last_reports(tx, [key], hidden=hidden.names)).get(key)
        )
    return _health(entry, figures, window, pulls.get(key, 0)), known


def waits_long(dispatch: Underway, backend: Health | None, now: int) -> bool:
    """Whether a dispatch has waited for its first report longer than nine in ten of its backend's dispatches."""
    usual = backend.stats.p90_queue_time if backend else None
    return dispatch.way == "waiting" and usual is not None and now - dispatch.since > usual * 1000


async def read_conditions(context: Context, tx: Transaction, scope: ConditionScope) -> list[Condition]:
    """Report which backends are red or silent, and which are not."""
    backends = await read_backends(tx, scope.hidden, CONDITION_DAYS, context.resource(WORKER_DAY_SUMS))
    shown = [
        health
        for health in backends
        if health.listed and health.level > 1 and not scope.hidden.has(health.repo)
    ]
    return [condition for health in shown for condition in _conditions(health, context.settings, tx.now)]


def _underway(row: DispatchRow) -> Underway:
    sent = row["dispatched_at"] if row["state"] == "sent" else None
    return Underway(row=row, way=WAY_OF_STATE[row["state"]], since=sent or row["created_at"])


async def _read_running(tx: Transaction) -> dict[str, int]:
    """Return the dispatches with a running job, and when it began."""
    began = sa.func.min(sa.func.coalesce(JOB.started_at, JOB.received_at))
    query = sa.select(JOB.dispatch_id, began).where(UNFINISHED, JOB.dispatch_id.is_not(None))
    rows = await tx.run(query.group_by(JOB.dispatch_id).order_by(began).limit(MOST_UNDERWAY))
    return {identifier: int(at) for identifier, at in rows}


async def _days(tx: Transaction, hidden: Hidden, repo: str, window: Window) -> list[Day]:
    """Return the days of one backend that may be shown: the window's and at least the sparkline's."""
    first = min(window.first, window.last - SPARK)
    return _DayFilter(hidden=hidden).of(await daily_sums.read_days(tx, first, backends=[repo.casefold()]))


async def _figures(
    tx: Transaction, wanted: _DayFilter, window: Window, cache: DaySumsCache
) -> dict[str, Figures]:
    """Return every backend's numbers; unchanged days are not added up again."""
    kind, last_old = (window.days, window.last, wanted), window.last - CHANGING
    old, new = (min(window.first, window.last - SPARK), last_old), (last_old + 1, window.last)
    make = partial(_part, wanted, window)
    before = await cache.of_days(tx, ("before", kind), old, make)
    recent = await cache.of_days(tx, ("recent", kind), new, make)
    day: dict[str, tuple[Tally, ...]] = {}
    if window.days == 1:
        day = await cache.since(tx, wanted, window.since, partial(_tallies, wanted))
    parts = {key: (before.get(key), recent.get(key), day.get(key)) for key in {**before, **recent}}
    # what turned red is judged by whole hours
    return cache.combined(kind, parts, partial(_figures_of_parts, window), valid=tx.now // HOUR)


def _part(wanted: _DayFilter, window: Window, days: Sequence[Day]) -> _Part:
    days = wanted.of(days)
    counted = [day.tally for day in days if day.day >= window.first]
    newest = max(days, key=lambda day: day.day, default=None)
    return _Part(
        newest=newest and replace(newest, tally=NO_TALLY, hours={}),
        counted=(add_tallies(counted),) if counted and window.days > 1 else (),
        daily=daily_counts(days),
        hourly=hourly_counts(days, first=window.last - HOURLY),
        last_at=max((day.tally.last_at for day in days), default=0),
    )


def _tallies(wanted: _DayFilter, days: Sequence[Day]) -> tuple[Tally, ...]:
    return tuple(day.tally for day in wanted.of(days))


def _figures_of_parts(
    window: Window, before: _Part | None, recent: _Part | None, day: tuple[Tally, ...] | None
) -> Figures:
    parts = [part for part in (before, recent) if part is not None]
    counted = [*(day or ()), *(tally for part in parts for tally in part.counted)]
    whole = _Part(
        newest=next((part.newest for part in reversed(parts) if part.newest), None),
        counted=(add_tallies(counted),) if counted else (),
        daily=tuple(count for part in parts for count in part.daily),
        hourly=tuple(count for part in parts for count in part.hourly),
        last_at=max((part.last_at for part in parts), default=0),
    )
    return _figure(window, whole)


def _figure(window: Window, part: _Part) -> Figures:
    return Figures(
        repo=part.newest.backend if part.newest else "",
        level=part.newest.level if part.newest else 0,
        counts=bool(part.counted),
        stats=stats.measure_backend(add_tallies(part.counted)),
        trend=tuple(daily_rates(part.daily, first=window.last - SPARK, last=window.last)),
        turned=find_turn(part.hourly, now=window.now),
        recent=recent_grades(part.hourly, now=window.now)[0],
        last_report_at=max([part.last_at, *(tally.last_at for tally in part.counted)]),
    )


def _with_last_report(figures: Figures, at: int | None) -> Figures:
    """Return the figures with the last report ever, where the days have none."""
    return figures if figures.last_report_at else replace(figures, last_report_at=at or 0)


def _health(entry: Entry | None, figures: Figures, window: Window, waiting_pulls: int) -> Health:
    level = entry.level if entry else figures.level
    return Health(
        repo=entry.repo if entry else figures.repo,
        level=level,
        device=entry.device if entry else None,
        shares_device=entry is not None and entry.shares_device,
        oncalls=entry.oncalls if entry else (),
        listed=entry is not None,
        stats=figures.stats,
        trend=figures.trend,
        turned=figures.turned,
        recent=figures.recent,
        waiting=waiting_pulls,
        last_report_at=figures.last_report_at or None,
        stale=level > 1 and 0 < figures.last_report_at < window.now - SILENT,
    )


def _worst_first(health: Health) -> tuple[int, bool, float, int, str]:
    rate = health.stats.pass_rate
    failed = health.stats.rated - health.stats.success
    return -health.level, rate is None, rate or 0.0, -failed, health.label.casefold()


class _WorkerDaySums(DaySumsCache):
    """The cache of sums of a worker."""

    async def close(self) -> None:
        """Nothing is open."""


def _conditions(health: Health, settings: Settings, now: int) -> Iterator[Condition]:
    subject = ConditionSubject(
        repo=settings.upstream_repo[0] if len(settings.upstream_repo) == 1 else "",
        backend=health.repo,
        oncalls=health.oncalls,
        path=f"/oot/{health.repo}",
    )
    key, name = health.repo.casefold(), f"{health.label} (L{health.level})"
    rate, rated = health.stats.pass_rate, text.plural(health.stats.rated, "run")
    numbers = () if rate is None else (f"{text.percent(rate)} of {rated} passed in 24 hours",)
    if health.turned == "red":
        yield Condition(
            event="backend_red",
            key=key,
            holds=True,
            heading=f"{name} turned red",
            lines=numbers,
            subject=subject,
        )
    elif health.recent == "green":
        yield Condition(
            event="backend_red",
            key=key,
            holds=False,
            heading=f"{name} recovered",
            lines=numbers,
            subject=subject,
        )
    if health.last_report_at is None:
        return
    silent = text.duration((now - health.last_report_at) / 1000)
    yield Condition(
        event="backend_silent",
        key=key,
        holds=health.stale,
        heading=f"{name} is silent" if health.stale else f"{name} reports again",
        lines=(f"its last report came {silent} ago",) if health.stale else (),
        since=health.last_report_at if health.stale else None,
        subject=subject,
    )
