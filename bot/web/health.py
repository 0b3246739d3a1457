"""Which backends are there, and how does each do? The allowlist and the days of a window, brought together."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.domain import stats, trend
from bot.domain.days import DAY, HOUR, Day
from bot.domain.stats import BackendStats
from bot.domain.tally import total
from bot.store import allowlists, reads, rollup, waiting
from bot.web.past import LIVELY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.domain.allowlist import Entry
    from bot.domain.tally import Tally
    from bot.store import Transaction
    from bot.web.access import Access
    from bot.web.past import Past, Sum, Sums

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


async def of_all(tx: Transaction, access: Access, days: int, past: Past) -> list[Health]:
    """Return every backend that is listed or was heard of in the window: from L4 down, worst first."""
    window = Window(days=days, now=tx.now)
    first = min(window.first, window.last - SPARK)
    sums = await past.read(tx, access, first=first, counted_from=window.first, today=window.last)
    lately = _by_backend(_visible(await rollup.read(tx, window.last - LIVELY + 1), access))
    counted = await _lately_counted(tx, window, sums, lately, access)
    allowlist = await allowlists.in_force(tx)
    entries = {entry.key: entry for entry in allowlist.entries} if allowlist else {}
    asked = await waiting.by_backend(tx, since=tx.now - GIVEN_UP, hidden=access.names)
    heard = {key for key in {**sums, **lately} if key in counted or _counts(sums.get(key), window)}
    found = []
    for key in {**entries, **dict.fromkeys(heard)}:
        gone = sums.get(key)
        drawn = [*(gone.drawn if gone else ()), *lately.get(key, ())]
        tallies = [one.tally for one in counted.get(key, ())]
        tallies += [gone.counted] if gone and days > 1 else []
        found.append(_health(entries.get(key), drawn, total(tallies), window, asked.get(key, 0)))
    return sorted(found, key=_worst_first)


async def of_one(tx: Transaction, access: Access, repo: str, days: int) -> Health | None:
    """Return one backend; None when it is neither listed nor was ever heard of."""
    key = repo.casefold()
    window = Window(days=days, now=tx.now)
    read = await of_days(tx, access, repo, first=min(window.first, window.last - SPARK))
    counted = await _counted(tx, window, read, access)
    allowlist = await allowlists.in_force(tx)
    entry = allowlist.find(repo) if allowlist else None
    if entry is None and not read:
        row = next(iter(await reads.latest_jobs(tx, repo, since=0, limit=1, hidden=access.names)), None)
        if row is None:
            return None
        nothing = BackendStats()
        name, level = row["downstream_repo"], row["downstream_repo_level"]
        return Health(
            repo=name, level=level, device=None, oncalls=(), listed=False, stats=nothing, stale=True
        )
    asked = await waiting.by_backend(tx, since=tx.now - GIVEN_UP, hidden=access.names)
    tally = total(one.tally for one in counted.get(key, ()))
    return _health(entry, read, tally, window, asked.get(key, 0))


async def of_days(tx: Transaction, access: Access, repo: str, *, first: int) -> list[Day]:
    """Return the days of one backend that may be shown."""
    return _visible(await rollup.read(tx, first, backends=[repo.casefold()]), access)


def _counts(gone: Sum | None, window: Window) -> bool:
    """Whether a backend did anything in the part of the window that is over."""
    return gone is not None and window.days > 1 and gone.newest.day >= window.first


async def _lately_counted(
    tx: Transaction, window: Window, sums: Sums, lately: dict[str, list[Day]], access: Access
) -> dict[str, list[Day]]:
    """Return by backend what belongs to the window and is not over for good."""
    if window.days > 1:
        return lately
    names = {key for key, gone in sums.items() if gone.newest.day >= window.first} | set(lately)
    return _by_backend(_visible(await rollup.since(tx, window.since, names), access))


async def _counted(
    tx: Transaction, window: Window, read: Sequence[Day], access: Access
) -> dict[str, list[Day]]:
    """Return by backend what the window's numbers are made of."""
    if window.days > 1:
        return _by_backend(one for one in read if one.day >= window.first)
    lately = {one.key for one in read if one.day >= window.first}
    return _by_backend(_visible(await rollup.since(tx, window.since, lately), access))


def _health(entry: Entry | None, drawn: Sequence[Day], counted: Tally, window: Window, asked: int) -> Health:
    newest = max(drawn, key=lambda one: one.day, default=None)
    heard_at = max([counted.last_at, *(one.tally.last_at for one in drawn)])
    level = entry.level if entry else newest.level if newest else 0
    return Health(
        repo=entry.repo if entry else newest.backend if newest else "",
        level=level,
        device=entry.device if entry else None,
        oncalls=entry.oncalls if entry else (),
        listed=entry is not None,
        stats=stats.numbers(counted),
        trend=tuple(trend.rates(drawn, first=window.last - SPARK, last=window.last)),
        turned=trend.turn(drawn, now=window.now),
        waiting=asked,
        heard_at=heard_at or None,
        stale=level > 1 and 0 < heard_at < window.now - SILENT,
    )


def _visible(found: Iterable[Day], access: Access) -> list[Day]:
    return [one for one in found if not access.hides(one.upstream)]


def _by_backend(found: Iterable[Day]) -> dict[str, list[Day]]:
    parts = defaultdict(list)
    for one in found:
        parts[one.key].append(one)
    return parts


def _worst_first(one: Health) -> tuple[int, bool, float, int, str]:
    rate = one.stats.pass_rate
    failed = one.stats.rated - one.stats.success
    return -one.level, rate is None, rate or 0.0, -failed, one.label.casefold()
