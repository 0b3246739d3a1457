"""Which backends are there, and how does each do? The allowlist and the rows of a window, brought together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.domain import stats
from bot.domain.stats import BackendStats
from bot.store import allowlists, reads
from bot.web.parameters import DAY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.domain.allowlist import Entry
    from bot.store import Transaction
    from bot.web.access import Access

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Health:
    """One backend: who it is, whether it is listed now, and its numbers of the window."""

    repo: str
    level: int
    device: str | None
    oncalls: tuple[str, ...]
    listed: bool
    stats: BackendStats

    @property
    def label(self) -> str:
        """The name people know it by."""
        return self.device or self.repo

    def matches(self, words: str) -> bool:
        """Whether every one of these words occurs in its names."""
        names = f"{self.repo} {self.device or ''}".casefold()
        return all(word in names for word in words.casefold().split())


async def of_all(tx: Transaction, access: Access, days: int) -> list[Health]:
    """Return every backend that is listed or was heard of in the window: from L4 down, worst first."""
    since = tx.now - days * DAY
    jobs = _visible(await reads.counted_jobs(tx, since), access)
    dispatches = _visible(await reads.unheard_dispatches(tx, since), access)
    allowlist = await allowlists.in_force(tx)
    entries = {entry.key: entry for entry in allowlist.entries} if allowlist else {}
    numbers = await asyncio.to_thread(stats.by_backend, jobs, dispatches)
    spelled = _spelled(jobs, dispatches)
    found = [
        _health(entries.get(key), *spelled.get(key, ("", 0)), numbers.get(key, BackendStats()))
        for key in {**entries, **numbers}
    ]
    return sorted(found, key=_worst_first)


async def of_one(tx: Transaction, access: Access, repo: str, days: int) -> Health | None:
    """Return one backend; None when it is neither listed nor was ever heard of."""
    since = tx.now - days * DAY
    jobs = _visible(await reads.counted_jobs(tx, since, backend=repo), access)
    dispatches = _visible(await reads.unheard_dispatches(tx, since, backend=repo), access)
    allowlist = await allowlists.in_force(tx)
    entry = allowlist.find(repo) if allowlist else None
    spelled = _spelled(jobs, dispatches) or _spelled(
        await reads.latest_jobs(tx, repo, since=0, limit=1, hidden=access.names), ()
    )
    if entry is None and not spelled:
        return None
    name, level = spelled.get(repo.casefold(), ("", 0))
    return _health(entry, name, level, stats.backend_stats(jobs, dispatches))


def _health(entry: Entry | None, name: str, level: int, numbers: BackendStats) -> Health:
    return Health(
        repo=entry.repo if entry else name,
        level=entry.level if entry else level,
        device=entry.device if entry else None,
        oncalls=entry.oncalls if entry else (),
        listed=entry is not None,
        stats=numbers,
    )


def _visible(rows: Iterable[Row], access: Access) -> list[Row]:
    return [row for row in rows if not access.hides(row["upstream_repo"])]


def _spelled(jobs: Iterable[Row], dispatches: Iterable[Row]) -> dict[str, tuple[str, int]]:
    """Return name and level of each backend as its newest row has them."""
    seen = [(row["created_at"], row["backend"], row["level"]) for row in dispatches] + [
        (row["received_at"], row["downstream_repo"], row["downstream_repo_level"]) for row in jobs
    ]
    return {name.casefold(): (name, level) for _, name, level in sorted(seen)}


def _worst_first(one: Health) -> tuple[int, bool, float, int, str]:
    rate = one.stats.pass_rate
    failed = one.stats.rated - one.stats.success
    return -one.level, rate is None, rate or 0.0, -failed, one.label.casefold()
