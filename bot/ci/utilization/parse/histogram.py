"""Percents in 101 bins, which add up exactly over days, jobs and repositories."""

from __future__ import annotations

import math
import struct
import zlib
from bisect import bisect_left
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BINS = 101  # bin b holds what rounds down to b; the last one holds 100 and everything above
COLUMNS = {"cpu": "cpu", "memory": "mem", "gpu": "gpu", "gpu_mem": "gpu_bw", "gpu_alloc": "gpu_alloc"}
METRICS = tuple(COLUMNS)  # in this order in packed histograms; their columns begin with other names
LANE = 8  # bytes of a bin: no sum of any number of jobs overflows it


class Histogram(NamedTuple):
    """Counts by bin, and the sum of the values in hundredths of a percent, from which the mean is exact."""

    bins: tuple[int, ...]
    total: int

    @classmethod
    def of(cls, values: Iterable[float], *, means: Iterable[float] | None = None) -> Self:
        """Return the histogram of values, NaN is none; `means` are summed in their place where they differ."""
        known = [value for value in values if value == value]  # noqa: PLR0124 - only NaN is not itself
        counts = Counter(map(int, known))
        bins = [counts.get(number, 0) for number in range(BINS - 1)]
        bins.append(len(known) - sum(bins))
        summed = known if means is None else (value for value in means if value == value)  # noqa: PLR0124
        return cls(tuple(bins), sum(round(value * 100) for value in summed))

    @property
    def points(self) -> int:
        """Return how many values it holds."""
        return sum(self.bins)

    @property
    def mean(self) -> float | None:
        """Return the mean of the values."""
        return self.total / 100 / self.points if self.points else None

    def quantiles(self, *shares: float) -> list[int | None]:
        """Return for each share the smallest bin at which it is reached; at most one point too low."""
        reached = list(accumulate(self.bins))
        count = reached[-1]
        if not count:
            return [None] * len(shares)
        # 0.07 * 100 is a little more than 7
        return [bisect_left(reached, max(1, math.ceil(share * count - 1e-9))) for share in shares]


def packed(histograms: Sequence[Histogram]) -> int:
    """Return the bins of some histograms as one number: to add or subtract it does so with every bin."""
    bins = [many for one in histograms for many in one.bins]
    return int.from_bytes(struct.pack(f"<{len(bins)}Q", *bins), "little")


def unpacked(number: int, totals: Sequence[int]) -> list[Histogram]:
    """Return the histograms of a packed number, given their sums of values."""
    count = len(totals) * BINS
    bins = struct.unpack(f"<{count}Q", number.to_bytes(count * LANE, "little"))
    return [Histogram(bins[at * BINS : (at + 1) * BINS], total) for at, total in enumerate(totals)]


def encoded(number: int, count: int) -> bytes:
    """Return the packed number of `count` histograms as it is stored."""
    return zlib.compress(number.to_bytes(count * BINS * LANE, "little"), 6)


def decoded(stored: bytes, count: int) -> int:
    """Return a stored number."""
    return int.from_bytes(zlib.decompressobj().decompress(stored, count * BINS * LANE), "little")
