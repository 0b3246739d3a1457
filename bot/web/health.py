"""Which backends are there, and how does each do? The allowlist and the days of a window, brought together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from bot.domain import stats, trend
from bot.domain.days import DAY, HOUR, Day
from bot.domain.stats import BackendStats
from bot.domain.tally import NOTHING, Tally, total
from bot.errors import Rejected
from bot.store import allowlists, reads, rollup, waiting

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.domain.allowlist import Entry
    from bot.domain.trend import Counts
    from bot.store import Transaction
    from bot.web.access import Hidden
    from bot.web.past import Past

LIVELY = 2  # newest days, which change all the time
HOURS = 8  # days before today whose hours are looked at, for what turned red or green
SPARK = 30  # days drawn beside every backend
SILENT = 36 * HOUR  # milliseconds after which a backend counts as stale
GIVEN_UP = 7 * DAY  # nobody waits for an answer for longer


@dataclass(frozen=True, kw_only=True)
class Window:
    """The days that numbers are about: 24 hours to the moment, otherwise whole UTC days and today so far."""

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
        """When it begins, epoch milliseconds."""
        return self.now - DAY if self.days == 1 else self.first * DAY


@dataclass(frozen=True, kw_only=True)
class Health:
    """One backend: who it is, whether it is listed now, its numbers of the window, and where it is going."""

    repo: str
    level: int
    device: str | None
    oncalls: tuple[str, ...]
    listed: bool
    stats: BackendStats
    trend: tuple[float | None, ...] = ()  # pass rates of the last days
    turned: str = ""  # red or green, in the last 24 hours
    waiting: int = 0  # open pull requests that wait for it
    heard_at: int | None = None  # last report in the window or the days drawn
    stale: bool = False  # it has reported before, but not in the last 36 hours

    @property
    def label(self) -> str:
        """The name people know it by."""
        return self.device or self.repo

    def matches(self, words: str) -> bool:
        """Whether every one of these words occurs in its names."""
        names = f"{self.repo} {self.device or ''}".casefold()
        return all(word in names for word in words.casefold().split())


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What the days of one backend amount to."""

    repo: str  # as its newest day spells it
    level: int
    counts: bool  # whether it did anything in the window
    stats: BackendStats
    trend: tuple[float | None, ...]
    turned: str
    heard_at: int  # 0: never


NO_FIGURES = Figures(
    repo="",
    level=0,
    counts=False,
    stats=BackendStats(),
    trend=(None,) * (SPARK + 1),
    turned="",
    heard_at=0,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """What some days of a backend amount to; plain tuples, since very many are kept and looked through."""

    newest: Day | None
    counted: tuple[Tally, ...]  # of the window: one, or none when nothing was done in it
    daily: Counts
    hourly: Counts
    last_at: int


async def of_all(
    tx: Transaction, hidden: Hidden, days: int, past: Past, events: frozenset[str] | None = None
) -> list[Health]:
    """Return every backend that is listed or was heard of in the window: from L4 down, worst first.

    With `events` only what is about these counts.
    """
    window = Window(days=days, now=tx.now)
    figures = await _figures(tx, _Seen(hidden=hidden, events=events), window, past)
    allowlist = await allowlists.in_force(tx)
    entries = {entry.key: entry for entry in allowlist.entries} if allowlist else {}
    asked = await waiting.by_backend(tx, since=tx.now - GIVEN_UP, hidden=hidden.names)
    shown = {key: figures.get(key, NO_FIGURES) for key in entries}
    shown |= {key: one for key, one in figures.items() if one.counts}
    silent = [key for key, one in shown.items() if not one.heard_at]
    before = await rollup.last_heard(tx, silent, hidden=hidden.names)
    found = [
        _health(entries.get(key), _or_before(one, before.get(key)), window, asked.get(key, 0))
        for key, one in shown.items()
    ]
    return sorted(found, key=_worst_first)


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """Which days count: those that may be shown, and are about some events or any."""

    hidden: Hidden
    events: frozenset[str] | None = None

    def of(self, days: Iterable[Day]) -> list[Day]:
        """Return those of some days."""
        return [
            one
            for one in days
            if not self.hidden.has(one.upstream) and (self.events is None or one.event in self.events)
        ]


async def of_one(tx: Transaction, hidden: Hidden, repo: str, window: Window) -> tuple[Health, Sequence[Day]]:
    """Return one backend and its days. Raises Rejected (404) when it is neither listed nor was ever heard of."""
    key, known = repo.casefold(), await _days(tx, hidden, repo, window)
    allowlist = await allowlists.in_force(tx)
    entry = allowlist.find(repo) if allowlist else None
    if entry is None and not known:
        row = next(iter(await reads.latest_jobs(tx, repo, since=0, limit=1, hidden=hidden.names)), None)
        if row is None:
            message = f"{repo[:200]} is not on the allowlist and has never reported"
            raise Rejected(404, "unknown_backend", message)
        nothing = BackendStats()
        name, level = row["downstream_repo"], row["downstream_repo_level"]
        forgotten = Health(
            repo=name, level=level, device=None, oncalls=(), listed=False, stats=nothing, stale=True
        )
        return forgotten, known
    asked = await waiting.by_backend(tx, since=tx.now - GIVEN_UP, hidden=hidden.names)
    day: tuple[Tally, ...] = ()
    if window.days == 1:
        day = _tallies(_Seen(hidden=hidden), (await rollup.since(tx, window.since, [key]))[key].days)
    figures = _together(window, None, _part(_Seen(hidden=hidden), window, known), day)
    if not figures.heard_at:
        figures = _or_before(figures, (await rollup.last_heard(tx, [key], hidden=hidden.names)).get(key))
    return _health(entry, figures, window, asked.get(key, 0)), known


async def _days(tx: Transaction, hidden: Hidden, repo: str, window: Window) -> list[Day]:
    """Return the days of one backend that may be shown, of the window and at least as many as are drawn."""
    first = min(window.first, window.last - SPARK)
    return _Seen(hidden=hidden).of(await rollup.read(tx, first, backends=[repo.casefold()]))


async def _figures(tx: Transaction, seen: _Seen, window: Window, past: Past) -> dict[str, Figures]:
    """Return what every backend's days amount to; what has not changed is not added up again."""
    what, over = (window.days, window.last, seen), window.last - LIVELY
    old, new = (min(window.first, window.last - SPARK), over), (over + 1, window.last)
    make = partial(_part, seen, window)
    gone = await past.of_days(tx, ("gone", what), old, make)
    lately = await past.of_days(tx, ("lately", what), new, make)
    day: dict[str, tuple[Tally, ...]] = {}
    if window.days == 1:
        day = await past.since(tx, seen, window.since, partial(_tallies, seen))
    parts = {key: (gone.get(key), lately.get(key), day.get(key)) for key in {**gone, **lately}}
    # what turned red is told in whole hours
    return past.made(what, parts, partial(_together, window), mark=tx.now // HOUR)


def _part(seen: _Seen, window: Window, days: Sequence[Day]) -> _Part:
    days = seen.of(days)
    counted = [one.tally for one in days if one.day >= window.first]
    newest = max(days, key=lambda one: one.day, default=None)
    return _Part(
        newest=newest and replace(newest, tally=NOTHING, hours={}),
        counted=(total(counted),) if counted and window.days > 1 else (),
        daily=trend.daily(days),
        hourly=trend.hourly(days, first=window.last - HOURS),
        last_at=max((one.tally.last_at for one in days), default=0),
    )


def _tallies(seen: _Seen, days: Sequence[Day]) -> tuple[Tally, ...]:
    return tuple(one.tally for one in seen.of(days))


def _together(
    window: Window, gone: _Part | None, lately: _Part | None, day: tuple[Tally, ...] | None
) -> Figures:
    parts = [part for part in (gone, lately) if part is not None]
    counted = [*(day or ()), *(tally for part in parts for tally in part.counted)]
    whole = _Part(
        newest=next((part.newest for part in reversed(parts) if part.newest), None),
        counted=(total(counted),) if counted else (),
        daily=tuple(one for part in parts for one in part.daily),
        hourly=tuple(one for part in parts for one in part.hourly),
        last_at=max((part.last_at for part in parts), default=0),
    )
    return _figure(window, whole)


def _figure(window: Window, part: _Part) -> Figures:
    return Figures(
        repo=part.newest.backend if part.newest else "",
        level=part.newest.level if part.newest else 0,
        counts=bool(part.counted),
        stats=stats.numbers(total(part.counted)),
        trend=tuple(trend.rates(part.daily, first=window.last - SPARK, last=window.last)),
        turned=trend.turn(part.hourly, now=window.now),
        heard_at=max([part.last_at, *(one.last_at for one in part.counted)]),
    )


def _or_before(seen: Figures, at: int | None) -> Figures:
    """Return the figures of a backend that may not have said anything in the days looked at, but once before."""
    return seen if seen.heard_at else replace(seen, heard_at=at or 0)


def _health(entry: Entry | None, seen: Figures, window: Window, asked: int) -> Health:
    level = entry.level if entry else seen.level
    return Health(
        repo=entry.repo if entry else seen.repo,
        level=level,
        device=entry.device if entry else None,
        oncalls=entry.oncalls if entry else (),
        listed=entry is not None,
        stats=seen.stats,
        trend=seen.trend,
        turned=seen.turned,
        waiting=asked,
        heard_at=seen.heard_at or None,
        stale=level > 1 and 0 < seen.heard_at < window.now - SILENT,
    )


def _worst_first(one: Health) -> tuple[int, bool, float, int, str]:
    rate = one.stats.pass_rate
    failed = one.stats.rated - one.stats.success
    return -one.level, rate is None, rate or 0.0, -failed, one.label.casefold()
