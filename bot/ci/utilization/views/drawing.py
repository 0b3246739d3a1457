"""The chart of a job: series, steps and commands over time, as positions; the template draws the SVG.

A column of the drawing is a line from the least to the greatest of its points, so that a spike of one record stays
visible at any scale. Coordinates are whole numbers, a series is one path.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIDTH, HEIGHT = 720, 240  # of the plot
HOLE = 3  # usual intervals; from there on nothing is known
TICKS_MOST = 7
LANES_MOST = 12  # of commands under the chart
PACKED_MOST = 150  # pieces, the longest
NICE = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400)

Piece = tuple[str, int, int]  # name, start, end


class Band(NamedTuple):
    """Something that lasted: where it is drawn."""

    x: int
    width: int


class Tick(NamedTuple):
    """A time on the axis."""

    x: int
    at: int


@dataclass(frozen=True, kw_only=True)
class Line:
    """A series: the path of its extremes, that of its means, and marks where it is over 100 %."""

    path: str
    mean: str
    over: str


class Window:
    """A part of a log's time, and the records in it."""

    def __init__(self, timestamps: Sequence[int], start: int, end: int) -> None:
        self.start, self.end = start, max(end, start + 1)
        self._times = timestamps
        # one record before and after: time without data may reach over the edges
        self.first = max(0, bisect_left(timestamps, start) - 1)
        self.last = min(len(timestamps), bisect_right(timestamps, end) + 1)
        columns = [
            bisect_left(timestamps, self.start + (self.end - self.start) * at / WIDTH, self.first, self.last)
            for at in range(WIDTH + 1)
        ]
        columns[-1] = bisect_right(timestamps, self.end, self.first, self.last)
        self.columns = [
            (at, begin, end) for at, (begin, end) in enumerate(itertools.pairwise(columns)) if begin < end
        ]
        self.gap = HOLE * usual_interval(timestamps)

    def x(self, at: float) -> int:
        """Return where a time is drawn."""
        share = (at - self.start) / (self.end - self.start)
        return round(min(max(share, 0.0), 1.0) * WIDTH)

    def band(self, start: float, end: float) -> Band | None:
        """Return where something that lasted is drawn; None outside."""
        if end < self.start or start > self.end:
            return None
        x = self.x(start)
        return Band(x, max(1, self.x(end) - x))

    def holes(self) -> list[Band]:
        """Return where nothing is known."""
        found = []
        for at in range(max(self.first, 1), self.last):
            before, after = self._times[at - 1], self._times[at]
            if after - before > self.gap and (band := self.band(before, after)):
                found.append(band)
        return found

    def ticks(self) -> list[Tick]:
        """Return round times."""
        length = self.end - self.start
        step = next((one for one in NICE if length / one <= TICKS_MOST), 86_400 * math.ceil(length / 604_800))
        first = -(-self.start // step) * step
        return [Tick(self.x(at), at) for at in range(first, self.end + 1, step)]

    def line(self, most: Sequence[float], means: Sequence[float] | None) -> Line:
        """Return how a series is drawn, given its maxima and means by record."""
        path, mean, over = _Pen(), _Pen(), []
        whole = not math.isnan(sum(most[self.first : self.last]))
        averages = means if means is not None else most
        broken_at = [at for at in range(max(self.first, 1), self.last) if self._hole(at)]
        for x, begin, end in self.columns:
            points = most[begin:end] if whole else _known(most[begin:end])
            if not points:
                continue
            broken = bool(broken_at) and bisect_right(broken_at, begin) != bisect_right(broken_at, path.at)
            path.at = mean.at = begin
            low, high = min(points), max(points)
            path.to(x, _y(high), lift=broken)
            path.down(_y(low))
            known = _known(averages[begin:end])
            if known:
                mean.to(x, _y(math.fsum(known) / len(known)), lift=broken)
            if high > 100:
                over.append(f"M{x} 0v-6")
        return Line(path=path.text(), mean=mean.text(), over="".join(over))

    def _hole(self, at: int) -> bool:
        return self._times[at] - self._times[at - 1] > self.gap


class _Pen:
    """Writes a path in relative coordinates."""

    def __init__(self) -> None:
        self.at = -1  # the record that was drawn last
        self._x = self._y = 0
        self._parts: list[str] = []

    def to(self, x: int, y: int, *, lift: bool) -> None:
        if lift or not self._parts:
            self._parts.append(f"M{x} {y}h1" if lift else f"M{x} {y}")
            x += lift
        elif y == self._y:
            self._parts.append(f"h{x - self._x}")
        else:
            self._parts.append(f"l{x - self._x} {y - self._y}")
        self._x, self._y = x, y

    def down(self, y: int) -> None:
        if y != self._y:
            self._parts.append(f"v{y - self._y}")
            self._y = y

    def text(self) -> str:
        return "".join(self._parts) + ("h1" if len(self._parts) == 1 else "")


class Placed(NamedTuple):
    """A piece and its lane, counted from 0."""

    lane: int
    piece: Piece


def pack_lanes(pieces: Iterable[Piece]) -> tuple[list[Placed], int]:
    """Return the pieces that have a place, by start, and how many others there are."""
    # each piece goes into the first lane that is free: there are as few as are needed
    longest = sorted(pieces, key=lambda one: one[1] - one[2])
    free: list[int] = []  # when each lane is free again
    placed = []
    for piece in sorted(longest[:PACKED_MOST], key=lambda one: (one[1], one[2], one[0])):
        lane = next((at for at, end in enumerate(free) if end <= piece[1]), len(free))
        if lane == LANES_MOST:
            continue
        if lane == len(free):
            free.append(0)
        free[lane] = max(piece[2], piece[1] + 1)
        placed.append(Placed(lane, piece))
    return placed, len(longest) - len(placed)


def usual_interval(timestamps: Sequence[int]) -> float:
    """Return the median of the times between records."""
    gaps = sorted(later - earlier for earlier, later in itertools.pairwise(timestamps))
    return max(1.0, gaps[len(gaps) // 2]) if gaps else 1.0


def _known(values: Sequence[float]) -> list[float]:
    return [value for value in values if value == value]  # noqa: PLR0124 - only NaN is not itself


def _y(percent: float) -> int:
    return round(HEIGHT * (1 - min(percent, 100.0) / 100))
