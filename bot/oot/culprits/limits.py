"""What holds a search back: the runs of a day are used up, or pull requests wait for the backend's machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.core import text
from bot.core.json_fields import iso_time
from bot.oot.culprits import rows, rows_runs
from bot.oot.culprits.start import terms_of
from bot.oot.statistics import stats
from bot.oot.statistics.days import DAY
from bot.oot.statistics.store import rollup

if TYPE_CHECKING:
    from bot.db.transaction import Transaction
    from bot.oot.allowlist.allowlist import Entry
    from bot.oot.culprits.tables import BisectRow
    from bot.oot.statistics.stats import BackendStats

DAYS = 14  # of the backend's times
PATIENCE = 600  # seconds that a pull request waits before a search yields, where no time is known
LOOK_AGAIN = 120_000  # milliseconds, while it yields


@dataclass(frozen=True, kw_only=True)
class Limit:
    """How many steps may be sent now, and if none, why and until when (epoch milliseconds)."""

    allowed: int | None = None  # None: all
    why: str = ""
    until: int | None = None


NOTHING = Limit()


async def find_limit(tx: Transaction, entry: Entry | None, search: BisectRow) -> Limit:
    """Return what holds a search back now."""
    per_day = terms_of(entry).per_day
    label = entry.label if entry else "upstream"
    sent = await rows.sent_on_day(tx, search["backend"], tx.now - DAY)
    if len(sent) >= per_day:
        until = sent[-per_day] + DAY
        words = f"the {text.plural(per_day, 'run')} a day for searches in {label} are used up"
        return Limit(allowed=0, why=f"{words}: it goes on at {iso_time(until)}", until=until)
    if entry is not None and (waits := await _longest_wait(tx, entry)):
        words = f"a pull request has waited for {label} for {text.duration(waits)}"
        return Limit(allowed=0, why=f"{words}: pull requests go first", until=tx.now + LOOK_AGAIN)
    return Limit(allowed=per_day - len(sent))


async def read_times(tx: Transaction, backend: str) -> BackendStats:
    """Return how long a backend's runs wait and take, by its newest days."""
    last = tx.now // DAY
    days = await rollup.read_days(tx, last - DAYS + 1, last=last, backends={backend.casefold()})
    return stats.numbers(stats.total(one.tally for one in days))


async def _longest_wait(tx: Transaction, entry: Entry) -> float | None:
    """Return how long a pull request has waited for a backend, if that is longer than nine in ten wait; seconds."""
    waiting = await rows_runs.queued_pulls(tx, entry.repo)
    if not waiting:
        return None
    usual = (await read_times(tx, entry.repo)).p90_queue_time
    longest = (tx.now - min(waiting)) / 1000
    return longest if longest > (PATIENCE if usual is None else usual) else None
