"""Which backends are there, and how does each do? The allowlist and the days of a window, brought together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from bot.domain import stats, trend
from bot.domain.days import DAY, HOUR, Day
from bot.domain.stats import BackendStats
from bot.domain.tally import Tally, total
from bot.store import allowlists, reads, rollup, waiting

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.domain.allowlist import Entry
    from bot.store import Transaction
    from bot.web.access import Access
    from bot.web.past import Past

LIVELY = 2  # newest days, which change all the time
HOURS = 9  # newest days whose hours are looked at, for what turned red or green
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
    stale: bool = False  # it has reported before, and not for long

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


NOTHING = Figures(
    repo="", level=0, counts=False, stats=BackendStats(), trend=(None,) * (SPARK + 1), turned="", heard_at=0
)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Gone:
    """What a backend did on days that are over."""

    counted: list[Tally]  # of the window: one, or none when it did nothing in it
    drawn: list[Day]  # without times


async def of_all(tx: Transaction, access: Access, days: int, past: Past) -> list[Health]:
    """Return every backend that is listed or was heard of in the window: from L4 down, worst first."""
    window = Window(days=days, now=tx.now)
    figures = await _figures(tx, access, window, past)
    allowlist = await allowlists.in_force(tx)
    entries = {entry.key: entry for entry in allowlist.entries} if allowlist else {}
    asked = await waiting.by_backend(tx, since=tx.now - GIVEN_UP, hidden=access.names)
    heard = {key: None for key, one in figures.items() if one.counts}
    found = [
        _health(entries.get(key), figures.get(key), window, asked.get(key, 0)) for key in {**entries, **heard}
    ]
    return sorted(found, key=_worst_first)


async def of_one(
    tx: Transaction, access: Access, repo: str, window: Window, known: Sequence[Day]
) -> Health | None:
    """Return one backend, given its days; None when it is neither listed nor was ever heard of."""
    key = repo.casefold()
    allowlist = await allowlists.in_force(tx)
    entry = allowlist.find(repo) if allowlist else None
    if entry is None and not known:
        row = next(iter(await reads.latest_jobs(tx, repo, since=0, limit=1, hidden=access.names)), None)
        if row is None:
            return None
        nothing = BackendStats()
        name, level = row["downstream_repo"], row["downstream_repo_level"]
        return Health(
            repo=name, level=level, device=None, oncalls=(), listed=False, stats=nothing, stale=True
        )
    asked = await waiting.by_backend(tx, since=tx.now - GIVEN_UP, hidden=access.names)
    counted = [one for one in known if one.day >= window.first]
    if window.days == 1 and counted:
        counted = _visible(access, (await rollup.since(tx, window.since, [key]))[key].days)
    figures = _amount(window, known, [one.tally for one in counted]) if known else None
    return _health(entry, figures, window, asked.get(key, 0))


async def of_days(tx: Transaction, access: Access, repo: str, window: Window) -> list[Day]:
    """Return the days of one backend that may be shown, of the window and at least as many as are drawn."""
    first = min(window.first, window.last - SPARK)
    return _visible(access, await rollup.read(tx, first, backends=[repo.casefold()]))


async def _figures(tx: Transaction, access: Access, window: Window, past: Past) -> dict[str, Figures]:
    """Return what every backend's days amount to; what has not changed is not added up again."""
    what, over = (window.days, window.last, access.names), window.last - LIVELY
    old, new = (min(window.first, window.last - SPARK), over), (over + 1, window.last)
    gone = await past.of_days(tx, ("gone", what), old, partial(_gone, access, window))
    lately = await past.of_days(tx, ("lately", access.names), new, partial(_visible, access))
    day: dict[str, list[Day]] = {}
    if window.days == 1:
        day = await past.since(tx, access.names, window.since, partial(_visible, access))
    hour = tx.now // HOUR
    parts = {key: (gone.get(key), lately.get(key), day.get(key), hour) for key in {**gone, **lately}}
    return past.made(what, parts, partial(_figure, window))


def _figure(
    window: Window, gone: _Gone | None, lately: list[Day] | None, day: list[Day] | None, _hour: int
) -> Figures:
    counted = [one.tally for one in (day or () if window.days == 1 else lately or ())]
    return _amount(
        window,
        [*(gone.drawn if gone else ()), *(lately or ())],
        [*(gone.counted if gone else ()), *counted],
    )


def _gone(access: Access, window: Window, days: Sequence[Day]) -> _Gone:
    seen = _visible(access, days)
    counted = [one.tally for one in seen if one.day >= window.first] if window.days > 1 else []
    return _Gone(
        counted=[total(counted)] if counted else [],
        drawn=[_light(one, keep_hours=one.day > window.last - HOURS) for one in seen],
    )


def _light(one: Day, *, keep_hours: bool) -> Day:
    """Return a day without histograms: what lines are drawn from."""
    tally = replace(one.tally, execution=0, queue=0, whole=0)
    return replace(one, tally=tally, hours=one.hours if keep_hours else {})


def _amount(window: Window, drawn: Sequence[Day], counted: Sequence[Tally]) -> Figures:
    newest = max(drawn, key=lambda one: one.day, default=None)
    return Figures(
        repo=newest.backend if newest else "",
        level=newest.level if newest else 0,
        counts=bool(counted),
        stats=stats.numbers(total(counted)),
        trend=tuple(trend.rates(drawn, first=window.last - SPARK, last=window.last)),
        turned=trend.turn(drawn, now=window.now),
        heard_at=max((one.last_at for one in [*counted, *(one.tally for one in drawn)]), default=0),
    )


def _health(entry: Entry | None, figures: Figures | None, window: Window, asked: int) -> Health:
    seen = figures or NOTHING
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


def _visible(access: Access, found: Iterable[Day]) -> list[Day]:
    return [one for one in found if not access.hides(one.upstream)]


def _worst_first(one: Health) -> tuple[int, bool, float, int, str]:
    rate = one.stats.pass_rate
    failed = one.stats.rated - one.stats.success
    return -one.level, rate is None, rate or 0.0, -failed, one.label.casefold()
