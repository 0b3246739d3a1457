"""Percents in 101 bins, which add up exactly over days, jobs and repositories."""

from __future__ import annotations

import math
import sys
import zlib
from array import array
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

BINS = 101  # bin b holds what rounds down to b; the last one holds 100 and everything above


class Histogram:
    """Counts by bin, and the sum of the values, from which the mean is exact."""

    def __init__(self, bins: Iterable[int] = (), total: float = 0.0) -> None:
        self.bins = array("I", bins or bytes(4 * BINS))
        if len(self.bins) != BINS:
            raise ValueError(f"a histogram has {BINS} bins, not {len(self.bins)}")
        self.total = total

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Return the histogram of values; NaN is none."""
        made = cls()
        known = [value for value in values if value == value]  # noqa: PLR0124 - only NaN is not itself
        for value in known:
            made.bins[min(100, int(value))] += 1
        made.total = math.fsum(known)
        return made

    @property
    def count(self) -> int:
        """Return how many values it holds."""
        return sum(self.bins)

    @property
    def mean(self) -> float | None:
        """Return the mean of the values."""
        return self.total / self.count if self.count else None

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram(
            [one + two for one, two in zip(self.bins, other.bins, strict=True)], self.total + other.total
        )

    def quantile(self, share: float) -> int | None:
        """Return the smallest bin at which this share of the values is reached; at most one point too low."""
        wanted, reached = math.ceil(share * self.count - 1e-9), 0  # 0.07 * 100 is a little more than 7
        for number, many in enumerate(self.bins):
            reached += many
            if many and reached >= wanted:
                return number
        return None

    def encoded(self) -> bytes:
        """Return the bins as they are stored."""
        bins = array("I", self.bins)
        if sys.byteorder == "big":
            bins.byteswap()
        return zlib.compress(bins.tobytes(), 6)

    @classmethod
    def decoded(cls, stored: bytes, total: float) -> Self:
        """Return a stored histogram."""
        bins = array("I", zlib.decompressobj().decompress(stored, 4 * BINS))
        if sys.byteorder == "big":
            bins.byteswap()
        return cls(bins, total)
