"""A suite cut into shards that take about as long: the longest test first, each to the shard with least to do."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

UNIT = 1.0  # seconds of every test where no time is known at all


@dataclass(kw_only=True)
class Shard:
    """Tests that run one after the other."""

    tests: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Division:
    """A suite in shards, and the tests whose times were not known."""

    shards: list[Shard]
    unknown: list[str]


def divide_tests(tests: Iterable[str], seconds: Mapping[str, float], count: int) -> Division:
    """Return tests in `count` shards, the same ones for the same tests and times in whatever order.

    Tests of unknown time count as the mean of the known ones. No shard is empty while there are enough tests.
    """
    named = sorted(set(tests))
    known = [seconds[name] for name in named if name in seconds] or list(seconds.values())
    mean = fmean(known) if known else UNIT
    shards = [Shard() for _ in range(count)]
    least = [(0.0, 0, number) for number in range(count)]  # a heap: seconds, tests and number of each shard
    for name in sorted(named, key=lambda name: (-seconds.get(name, mean), name)):
        _, tests_there, number = least[0]
        shards[number].tests.append(name)
        shards[number].seconds += seconds.get(name, mean)
        heapq.heapreplace(least, (shards[number].seconds, tests_there + 1, number))
    return Division(shards=shards, unknown=[name for name in named if name not in seconds])
