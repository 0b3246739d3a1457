"""How do the failed jobs of a pull request compare with the same jobs elsewhere? Asked once each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.domain import history
from bot.domain.history import Compared
from bot.domain.view import History
from bot.store import baselines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.store import Transaction
    from bot.store.baselines import Failed

Row = dict[str, Any]
DAY = 86_400_000  # milliseconds
ON_BASE, ELSEWHERE = 30 * DAY, 7 * DAY  # how old a run may be that a failure is compared with
RUNS_ON_BASE, RUNS_ELSEWHERE = 3, 10  # how many of them are looked at


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A failed job, and all that its backend reported on the same commit, oldest first."""

    failed: Failed
    same_head: Sequence[Row]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What each failure is, by job key, and what of that was not known before: rows to be kept."""

    found: Mapping[str, Compared]
    fresh: Sequence[Row]


async def compare(tx: Transaction, wanted: Sequence[Wanted]) -> Comparison:
    """Say what each failure is; what was kept of earlier comparing is not asked for again."""
    known = await baselines.kept(tx, [one.failed.job["job_key"] for one in wanted])
    found: dict[str, Compared] = {}
    fresh: list[Row] = []
    for one in wanted:
        job = one.failed.job
        row = known.get(job["job_key"])
        if row is None or row["completed_at"] != job["completed_at"]:
            elsewhere = await _elsewhere(tx, one.failed)
            row = {
                "job_key": job["job_key"],
                "completed_at": job["completed_at"],
                "history": str(elsewhere.history),
                "url": elsewhere.url,
                "elsewhere": elsewhere.elsewhere,
            }
            fresh.append(row)
        said = Compared(history=History(row["history"]), url=row["url"], elsewhere=row["elsewhere"])
        same_head = [other for other in reversed(one.same_head) if _named(other) == _named(job)]
        found[job["job_key"]] = history.flaky(history.pasts(same_head)) or said
    return Comparison(found=found, fresh=fresh)


async def _elsewhere(tx: Transaction, failed: Failed) -> Compared:
    base = await baselines.on_base(tx, failed, within=ON_BASE, limit=RUNS_ON_BASE)
    others = await baselines.on_other_pulls(tx, failed, within=ELSEWHERE, limit=RUNS_ELSEWHERE)
    return history.compare_elsewhere(
        history.past(failed.job), base=history.pasts(base), others=history.pasts(others)
    )


def _named(row: Row) -> tuple[str, str]:
    return row["workflow_name"], row["job_name"]
