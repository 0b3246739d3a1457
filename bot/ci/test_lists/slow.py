"""Which tests are slow: the mean over jobs of what each spent on a test that passed. Pure."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean
from typing import TYPE_CHECKING

from bot.ci.test_results import block
from bot.ci.test_results.block import NO_TIME, PASSING

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable

    from bot.ci.test_results.block import Block

Sums = defaultdict[int, defaultdict["Hashable", int]]  # milliseconds by test and job

SLOW = 60.0  # seconds; a test that takes longer is slow
# milliseconds of a case that make a test worth adding up; one below takes a minute only by running sixty times
LONG = 1_000
SANITIZER = "asan"  # in the name of a job under which everything is slow
MAIN = "__main__"


def candidates(blocks: Iterable[Block]) -> set[int]:
    """Return the ids of tests that may be slow."""
    found: set[int] = set()
    for one in blocks:
        found.update(
            test_id for test_id, time in zip(one.ids, one.times, strict=True) if LONG <= time < NO_TIME
        )
    return found


def add(sums: Sums, job: Hashable, shard: Block, wanted: Collection[int]) -> None:
    """Add what a shard of a job spent on some tests that passed."""
    for test_id, code, time in zip(*shard, strict=True):
        if test_id in wanted and time != NO_TIME and block.outcome_of(code) in PASSING:
            sums[test_id][job] += time


def means(sums: Sums) -> dict[int, float]:
    """Return the mean seconds over jobs of the tests that are slow."""
    found = {test_id: fmean(by_job.values()) / 1000 for test_id, by_job in sums.items()}
    return {test_id: seconds for test_id, seconds in found.items() if seconds > SLOW}


def no_sums() -> Sums:
    """Return sums with nothing added yet."""
    return defaultdict(lambda: defaultdict(int))


def key(name: str, suite: str) -> str:
    """Return a test as PyTorch's CI names it: a suite without a module is one of the main module."""
    return f"{name} ({suite if '.' in suite else f'{MAIN}.{suite}'})"
