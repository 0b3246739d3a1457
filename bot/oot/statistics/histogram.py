"""Histograms of durations: times counted in steps, with their median and 90th percentile.

A histogram is one whole number with a field of 32 bits for every step: histograms are added as numbers are, however
many runs they count.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BANDS = (  # from how many seconds on, in steps of how many
    (0, 1),
    (120, 10),
    (600, 30),
    (3_600, 300),
    (43_200, 3_600),
)
LONGEST = 14 * 86_400  # seconds; longer times are counted as this
WIDTH = 4  # bytes of a field


def _steps() -> list[int]:
    ends = [first for first, _ in BANDS[1:]] + [LONGEST + 1]
    return [
        value for (first, step), end in zip(BANDS, ends, strict=True) for value in range(first, end, step)
    ]


STEPS = _steps()  # seconds, by field
_FIELD = {value: field for field, value in enumerate(STEPS)}


def rounded(seconds: float) -> int:
    """Round a time to the step it is counted as."""
    if seconds >= LONGEST:
        return LONGEST
    step = next(step for first, step in reversed(BANDS) if seconds >= first or first == 0)
    return max(0, round(seconds / step) * step)


def pack(times: Iterable[float]) -> int:
    """Return the histogram of some times, in seconds."""
    fields = [0] * len(STEPS)
    for seconds in times:
        fields[_FIELD[rounded(seconds)]] += 1
    return int.from_bytes(struct.pack(f"<{len(fields)}I", *fields), "little")


def to_bytes(packed: int) -> bytes:
    """Return the bytes to store, without unused fields at the end."""
    return packed.to_bytes((packed.bit_length() + 7) // 8, "little")


def from_bytes(stored: bytes) -> int:
    """Return a stored histogram."""
    return int.from_bytes(stored, "little")


def summary(packed: int) -> tuple[float | None, float | None]:
    """Return median (the mean of the two middle times) and p90 (the time that nine tenths do not exceed)."""
    sums = _sums(packed)
    if not sums:
        return None, None
    count = sums[-1]
    middle = (_at(sums, (count + 1) // 2) + _at(sums, count // 2 + 1)) / 2
    return middle, float(_at(sums, -(-count * 9 // 10)))


def share_over(packed: int, seconds: float) -> float | None:
    """Return the share of times longer than that; None when there are none."""
    sums = _sums(packed)
    if not sums:
        return None
    up_to = sums[: _FIELD[rounded(seconds)] + 1]
    return 1 - up_to[-1] / sums[-1]


def total(packed: int) -> tuple[int, int]:
    """Return the number of times and their sum in seconds, as counted."""
    sums = _sums(packed)
    each = [after - before for before, after in pairwise([0, *sums])]
    return (sums[-1] if sums else 0), sum(count * step for count, step in zip(each, STEPS, strict=False))


def longest(packed: int) -> int:
    """Return the longest time, as counted."""
    sums = _sums(packed)
    return _at(sums, sums[-1]) if sums else 0


def counts(packed: int, bounds: Sequence[float]) -> list[int]:
    """Count the times between each bound and the one before; the last count is of those above all bounds."""
    sums = _sums(packed)
    if not sums:
        return [0] * (len(bounds) + 1)
    up_to = [sums[min(_FIELD[rounded(bound)], len(sums) - 1)] for bound in bounds]
    return [after - before for before, after in pairwise([0, *up_to, sums[-1]])]


def _sums(packed: int) -> list[int]:
    """Return the number of times up to each step."""
    stored = to_bytes(packed)
    stored += bytes(-len(stored) % WIDTH)
    return list(accumulate(struct.unpack(f"<{len(stored) // WIDTH}I", stored)))


def _at(sums: list[int], rank: int) -> int:
    """Return the time at a rank, counted from 1 in ascending order."""
    return STEPS[bisect_left(sums, rank)]
