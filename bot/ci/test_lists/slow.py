"""Which tests are slow: the mean over jobs of what each spent on a test that passed. Pure."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean
from typing import TYPE_CHECKING

from bot.ci.test_results.parse import block
from bot.ci.test_results.parse.block import NO_TIME, PASSING

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from bot.ci.test_results.parse.block import Block

Sums = defaultdict[int, defaultdict["Hashable", int]]  # milliseconds by test and job

SLOW = 60.0  # seconds; a test that takes longer is slow
SANITIZER = "asan"  # in the name of a job under which everything is slow
MAIN = "__main__"


def candidates(shard: Block, shards: int) -> set[int]:
    """Return the ids of the tests of a shard that may be slow, if its job has so many shards.

    A test on which a job spends over a minute takes its share of that in one of the shards, in one case or, where
    several files launched it, in several.
    """
    share = SLOW * 1000 / max(shards, 1)
    found = {test_id for test_id, time in zip(shard.ids, shard.times, strict=True) if share <= time < NO_TIME}
    if len(set(shard.ids)) < len(shard.ids):
        spent: defaultdict[int, int] = defaultdict(int)
        for test_id, time in zip(shard.ids, shard.times, strict=True):
            if time != NO_TIME:
                spent[test_id] += time
        found.update(test_id for test_id, time in spent.items() if time >= share)
    return found


def add_times(sums: Sums, job: Hashable, shard: Block, wanted: Collection[int]) -> None:
    """Add what a shard of a job spent on some tests that passed."""
    for test_id, code, time in zip(*shard, strict=True):
        if test_id in wanted and time != NO_TIME and block.outcome_of(code) in PASSING:
            sums[test_id][job] += time


def slow_means(sums: Sums) -> dict[int, float]:
    """Return the mean seconds over jobs of the tests that are slow."""
    found = {test_id: fmean(by_job.values()) / 1000 for test_id, by_job in sums.items()}
    return {test_id: seconds for test_id, seconds in found.items() if seconds > SLOW}


def no_sums() -> Sums:
    """Return sums with nothing added yet."""
    return defaultdict(lambda: defaultdict(int))


def test_key(name: str, suite: str) -> str:
    """Return a test as PyTorch's CI names it: a suite without a module is one of the main module."""
    return f"{name} ({suite if '.' in suite else f'{MAIN}.{suite}'})"
