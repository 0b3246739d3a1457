"""How much of what was looked up a cache had, and since when it has much less. Pure."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from bot.ci.extras.trends import BEFORE, LEAST_BEFORE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from bot.ci.extras.caches.tables import CacheDayRow, CacheJob

ALL = ""  # all languages together
FALL = 0.2  # 20 points


class Rate(NamedTuple):
    """What a cache had, and what not."""

    hits: int
    misses: int

    @property
    def share(self) -> float | None:
        """The hit rate; None where nothing was looked up."""
        looked_up = self.hits + self.misses
        return self.hits / looked_up if looked_up else None


class Standing(NamedTuple):
    """The newest rate beside the usual one."""

    now: float
    usual: float | None
    fell_at: int | None  # the place of the first run that is much lower


def rates(hits: Mapping[str, int], misses: Mapping[str, int]) -> dict[str, Rate]:
    """Return the rate of each language, and of all together.

    >>> rates({"C/C++": 300, "Rust": 0}, {"C/C++": 19, "Rust": 264})[""]
    Rate(hits=300, misses=283)
    """
    found = {one: Rate(hits.get(one, 0), misses.get(one, 0)) for one in sorted({*hits, *misses} - {ALL})}
    return {ALL: Rate(sum(hits.values()), sum(misses.values()))} | found


def judge(shares: Sequence[float]) -> Standing:
    """Return how the newest of some rates stands, oldest first.

    A run that is 20 points below the median of the ten before is a fall; it ends once a run is near that median again.

    >>> judge([0.95] * 8 + [0.2, 0.21])
    Standing(now=0.21, usual=0.95, fell_at=8)
    >>> judge([0.95] * 8 + [0.2, 0.94]).fell_at is None
    True
    """
    usual: list[float] = []
    fell_at = None
    for at, share in enumerate(shares):
        before = usual[-BEFORE:]
        low = len(before) >= LEAST_BEFORE and round(median(before) - share, 9) >= FALL
        if low:
            fell_at = at if fell_at is None else fell_at
        else:
            fell_at = None
            usual.append(share)
    before = usual[-BEFORE:] if fell_at is not None else usual[-BEFORE - 1 : -1]
    return Standing(shares[-1], median(before) if len(before) >= LEAST_BEFORE else None, fell_at)


def add_up(rows: Collection[CacheJob | CacheDayRow]) -> dict[str, Any]:
    """Return what jobs, or days, come to together."""
    return {
        "hits": add_counts(one["hits"] for one in rows),
        "misses": add_counts(one["misses"] for one in rows),
        "errors": sum(one["errors"] for one in rows),
        "not_cacheable": sum(one["not_cacheable"] for one in rows),
        "reasons": add_counts(one["reasons"] for one in rows),
    }


def add_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums by name, the largest first."""
    found: dict[str, int] = {}
    for each in counts:
        for name, number in each.items():
            found[name] = found.get(name, 0) + number
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))
