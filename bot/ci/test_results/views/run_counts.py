"""What trusted runs said of the tests of a list: how often each ran, passed and was skipped, and how long it took."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bot.ci.test_results import day_counts
from bot.ci.test_results.day_counts import Counts
from bot.ci.test_results.store import count_days
from bot.ci.test_results.store.rows import DAY

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from bot.ci.test_results.store.list_rows import Choice
    from bot.db.transaction import Transaction

SUMS_MOST = 200  # that are read for one list: each has the sums of 4,096 tests on one day


class RunCounts(NamedTuple):
    """What trusted runs of some days said of a test."""

    counts: Counts = Counts()

    @property
    def pass_rate(self) -> float | None:
        """The share of runs that passed; None where it never ran, skipped tests have not run."""
        ran = self.counts.runs - self.counts.skips
        return self.counts.passed / ran if ran > 0 else None

    @property
    def average_ms(self) -> int | None:
        """The time of a run; None where it never ran."""
        ran = self.counts.runs - self.counts.skips
        return round(self.counts.time_ms / ran) if ran > 0 else None


class Counted(NamedTuple):
    """The counts of a list."""

    days: int  # that were counted, today included
    by_test: Mapping[int, RunCounts]

    def of(self, test_id: int) -> RunCounts:
        """Return what is known of a test."""
        return self.by_test.get(test_id, RunCounts())


async def count_runs(tx: Transaction, choice: Choice, test_ids: Collection[int], *, days: int) -> Counted:
    """Return the counts of tests in the chosen environments, of fewer days where the tests are spread far."""
    pages = len({day_counts.page_of(one) for one in test_ids})
    counted = max(min(days, SUMS_MOST // max(pages, 1)), 1)
    last = tx.now // DAY
    found: dict[int, Counts] = {}
    for repository_id in sorted(choice.repository_ids):
        by_test = await count_days.days_of_tests(
            tx, repository_id, test_ids, since=last - counted + 1, until=last
        )
        for test_id, by_day in by_test.items():
            for by_group in by_day.values():
                for group, counts in by_group.items():
                    if choice.env_group in ("", group):
                        found[test_id] = found.get(test_id, Counts()).plus(counts)
    return Counted(counted, {test_id: RunCounts(counts) for test_id, counts in found.items()})
