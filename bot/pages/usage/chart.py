"""The chart and the tables of a job's usage, made from its row and its series; the template draws the SVG.

A column of the drawing is a line from the least to the greatest of its points, so that a spike of one record
stays visible at any scale. Coordinates are whole numbers, a series is one path.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from bot.evidence.usage.parse.segments import in_background
from bot.evidence.usage.parse.summary import MEMORY, Summary, summarize_series, time_weights, weighted_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.evidence.usage.parse.columns import StoredUsage
    from bot.evidence.usage.tables import JobRow

WIDTH, HEIGHT = 720, 240  # of the plot
HOLE = 3  # usual intervals; from there on nothing is known
TICKS_MOST = 7
LANES_MOST = 12  # of commands under the chart
PACKED_MOST = 150  # pieces, the longest
NICE = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400)

Piece = tuple[str, int, int]  # name, start, end
STEPS_DRAWN, STEPS_LISTED, COMMANDS_LISTED, PAIRS_LISTED, SERIES_LISTED = 60, 60, 50, 20, 100
LANE = 11  # units of the drawing
SERIES_SHOWN_MOST = 6  # at once
ACCELERATOR_FIELDS = {
    "util_percent": "util",
    "mem_util_percent": "mem_bandwidth",
    "allocated_mem_percent": "allocated_mem_percent",
}


class Band(NamedTuple):
    """Something that lasted: where it is drawn."""

    x: int
    width: int


class Tick(NamedTuple):
    """A time on the axis."""

    x: int
    at: int


@dataclass(frozen=True, kw_only=True)
class SeriesLine:
    """A series: the path of its extremes, the path of its means, and marks where it exceeds 100 %."""

    path: str
    mean: str
    over: str


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


class ChartStep(NamedTuple):
    """A step of the job; times are seconds."""

    name: str
    start: int
    end: int


class DrawnSeries(NamedTuple):
    """A series in the chart: its colour, its line, its numbers in the window."""

    number: int
    name: str
    line: SeriesLine
    average: float | None  # of the means, as everywhere; the summary is of the maxima
    summary: Summary | None
    toggle: str


class DrawnBar(NamedTuple):
    """A step or command under the chart."""

    band: Band
    name: str
    start: int
    end: int
    lane: int
    zoom: str


class StepRow(NamedTuple):
    """A step in the table: the most of every series shown."""

    name: str
    start: int
    seconds: int
    most: list[float | None]
    zoom: str


class CommandRow(NamedTuple):
    """A piece of time in which a command ran, in the table."""

    name: str
    start: int
    seconds: int
    share: float  # of the job
    memory: float | None  # the most while it ran
    alone_s: float | None  # of the command as a whole
    shared_s: float | None
    zoom: str


@dataclass(frozen=True, kw_only=True)
class JobChart:
    """What the page shows of a job's series."""

    start: int
    end: int
    whole: bool
    drawn: list[DrawnSeries]
    others: list[tuple[str, str]]  # name, link that adds it
    ticks: list[Tick]
    holes: list[Band]
    steps: list[DrawnBar]
    commands: list[DrawnBar]
    lanes: int
    more: int  # commands that have no place
    zooms: list[tuple[str, str]]  # words, link
    step_lines: list[StepRow]
    command_lines: list[CommandRow]
    commands_more: int
    pairs: list[dict[str, Any]]
    series: list[tuple[str, float | None, Mapping[str, Any]]]  # every one of the job: average and summary
    memory: list[tuple[str, float]]  # the most MiB that each accelerator had in use
    height: int = field(default=0)  # of what stands under the plot


@dataclass(frozen=True, kw_only=True)
class ChartQuery:
    """What the address asks for."""

    path: str
    series: str  # names, with commas between
    start: int  # seconds, 0: the beginning
    end: int  # 0: the end
    everything: bool  # commands of no interest, too

    def link(self, *, start: int = 0, end: int = 0, series: str | None = None) -> str:
        """Return the address of another part, or of other series."""
        chosen = {
            "series": self.series if series is None else series,
            "from": start or "",
            "to": end or "",
            "all": "1" if self.everything else "",
        }
        query = urlencode({name: value for name, value in chosen.items() if value}, safe=",")
        return self.path + (f"?{query}" if query else "")


class ChartedSeries(NamedTuple):
    """A series that can be charted: its short name, and the ids of its two halves."""

    name: str  # such as gpu_0_util
    most: str  # id of the maxima
    mean: str  # id of the means; the log may not have it


class TimeWindow:
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
        bands = []
        for at in range(max(self.first, 1), self.last):
            before, after = self._times[at - 1], self._times[at]
            if after - before > self.gap and (band := self.band(before, after)):
                bands.append(band)
        return bands

    def ticks(self) -> list[Tick]:
        """Return round times."""
        length = self.end - self.start
        step = next(
            (length_of_step for length_of_step in NICE if length / length_of_step <= TICKS_MOST),
            86_400 * math.ceil(length / 604_800),
        )
        first = -(-self.start // step) * step
        return [Tick(self.x(at), at) for at in range(first, self.end + 1, step)]

    def line(self, most: Sequence[float], means: Sequence[float] | None) -> SeriesLine:
        """Draw a series, given its maxima and means by record."""
        path, mean, over = _Pen(), _Pen(), []
        whole = not math.isnan(sum(most[self.first : self.last]))
        averages = means if means is not None else most
        broken_at = [at for at in range(max(self.first, 1), self.last) if self._hole(at)]
        for x, begin, end in self.columns:
            points = most[begin:end] if whole else _known_values(most[begin:end])
            if not points:
                continue
            broken = bool(broken_at) and bisect_right(broken_at, begin) != bisect_right(broken_at, path.at)
            path.at = mean.at = begin
            low, high = min(points), max(points)
            path.to(x, _y(high), lift=broken)
            path.down(_y(low))
            known = _known_values(averages[begin:end])
            if known:
                mean.to(x, _y(math.fsum(known) / len(known)), lift=broken)
            if high > 100:
                over.append(f"M{x} 0v-6")
        return SeriesLine(path=path.text(), mean=mean.text(), over="".join(over))

    def _hole(self, at: int) -> bool:
        return self._times[at] - self._times[at - 1] > self.gap


def pack_lanes(pieces: Iterable[Piece]) -> tuple[list[Placed], int]:
    """Give pieces lanes: return those that have one, by start, and how many others there are."""
    # each piece goes into the first lane that is free: there are as few as are needed
    longest = sorted(pieces, key=lambda piece: piece[1] - piece[2])
    free: list[int] = []  # when each lane is free again
    placed = []
    for piece in sorted(longest[:PACKED_MOST], key=lambda piece: (piece[1], piece[2], piece[0])):
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


def _known_values(values: Sequence[float]) -> list[float]:
    return [value for value in values if value == value]  # noqa: PLR0124 - only NaN is not itself


def _y(percent: float) -> int:
    return round(HEIGHT * (1 - min(percent, 100.0) / 100))


def draw_job(row: JobRow, stored: StoredUsage, steps: Sequence[ChartStep], query: ChartQuery) -> JobChart:
    """Draw the chart and fill the tables of a job's page."""
    known = charted_series(stored.series)
    summaries = stored.details.get("summaries", {})
    means = {name: summary["avg"] for name, summary in summaries.items()}
    shown = choose_series(known, query.series, means)
    first, last = stored.timestamps[0], max(stored.timestamps[-1], stored.timestamps[0] + 1)
    start, end = _clamped(query.start or first, first, last), _clamped(query.end or last, first, last)
    if end <= start:
        start, end = first, last
    whole = (start, end) == (first, last)
    window = TimeWindow(stored.timestamps, start, end)
    stands_for = time_weights(stored.timestamps)[0]
    pieces: list[Piece] = [
        (str(name), int(begin), int(stop))
        for name, begin, stop in row["segments"]
        if query.everything or not in_background(str(name))
    ]
    inside = [piece for piece in pieces if piece[2] >= start and piece[1] <= end]
    placed, more = pack_lanes(inside)
    bars = [_bar(window, placed_piece.piece, placed_piece.lane, query) for placed_piece in placed]
    drawn = [
        _draw_series(number, series, stored, window, _without(series, shown, query))
        for number, series in enumerate(shown, 1)
    ]
    count = 1 + max((placed_piece.lane for placed_piece in placed), default=-1)
    return JobChart(
        start=start,
        end=end,
        whole=whole,
        drawn=drawn,
        others=_others(known, shown, query, start if not whole else 0, end if not whole else 0),
        ticks=window.ticks(),
        holes=window.holes(),
        steps=[
            bar
            for step in _longest_steps(steps)
            if (bar := _bar(window, (step.name, step.start, step.end), 0, query))
        ],
        commands=[bar for bar in bars if bar],
        lanes=count,
        more=more,
        zooms=_zooms(start, end, first, last, query),
        step_lines=[_step_row(step, stored, shown, query) for step in steps[:STEPS_LISTED]],
        command_lines=_command_rows(inside, stored, row, query),
        commands_more=max(0, len(inside) - COMMANDS_LISTED),
        pairs=stored.details.get("pairs", [])[:PAIRS_LISTED],
        series=[
            (
                charted.name,
                weighted_mean(stored.series.get(charted.mean), stands_for),
                summaries[charted.most],
            )
            for charted in known
            if charted.most in summaries
        ][:SERIES_LISTED],
        memory=_accelerator_memory(summaries),
        height=26 + (LANE + 3 if steps else 0) + count * LANE,
    )


def _clamped(at: int, first: int, last: int) -> int:
    return min(max(at, first), last)


def _longest_steps(steps: Sequence[ChartStep]) -> list[ChartStep]:
    chosen = sorted(steps, key=lambda step: step.start - step.end)[:STEPS_DRAWN]
    return sorted(chosen, key=lambda step: step.start)


def _bar(window: TimeWindow, piece: Piece, lane: int, query: ChartQuery) -> DrawnBar | None:
    name, start, end = piece
    band = window.band(start, end)
    if band is None:
        return None
    return DrawnBar(band, name, start, end, lane, query.link(start=start, end=max(end, start + 1)))


def _draw_series(
    number: int, charted: ChartedSeries, stored: StoredUsage, window: TimeWindow, toggle: str
) -> DrawnSeries:
    most, means, times = stored.series[charted.most], stored.series.get(charted.mean), stored.timestamps
    inside = slice(bisect_left(times, window.start), bisect_right(times, window.end))
    average = None if means is None else weighted_mean(means[inside], time_weights(times)[0][inside])
    return DrawnSeries(
        number, charted.name, window.line(most, means), average, summarize_series(most[inside]), toggle
    )


def _without(removed: ChartedSeries, shown: Sequence[ChartedSeries], query: ChartQuery) -> str:
    left = ",".join(other.name for other in shown if other is not removed)
    return query.link(start=query.start, end=query.end, series=left)


def _others(
    known: Sequence[ChartedSeries], shown: Sequence[ChartedSeries], query: ChartQuery, start: int, end: int
) -> list[tuple[str, str]]:
    names = [series.name for series in shown]
    kept = names[: SERIES_SHOWN_MOST - 1]
    return [
        (series.name, query.link(start=start, end=end, series=",".join([*kept, series.name])))
        for series in known
        if series.name not in names
    ]


def _zooms(start: int, end: int, first: int, last: int, query: ChartQuery) -> list[tuple[str, str]]:
    middle, length = (start + end) // 2, end - start
    links = []
    if (start, end) != (first, last):
        wider = (_clamped(start - length // 2, first, last), _clamped(end + length // 2, first, last))
        links += [("Whole job", query.link()), ("Wider", query.link(start=wider[0], end=wider[1]))]
        if start > first:
            links.append(("Earlier", query.link(start=max(first, start - length), end=start)))
        if end < last:
            links.append(("Later", query.link(start=end, end=min(last, end + length))))
    if length >= 2:
        links += [
            ("First half", query.link(start=start, end=middle)),
            ("Second half", query.link(start=middle, end=end)),
        ]
    return links


def _step_row(
    step: ChartStep, stored: StoredUsage, shown: Sequence[ChartedSeries], query: ChartQuery
) -> StepRow:
    most = [_most(stored.timestamps, stored.series[each.most], step.start, step.end) for each in shown]
    link = query.link(start=step.start, end=max(step.end, step.start + 1))
    return StepRow(step.name, step.start, step.end - step.start, most, link)


def _command_rows(
    pieces: Sequence[Piece], stored: StoredUsage, row: JobRow, query: ChartQuery
) -> list[CommandRow]:
    length = max(1, row["end_at"] - stored.timestamps[0])
    used = {usage["command"]: usage for usage in stored.details.get("usages", [])}
    memory = stored.series.get(MEMORY)
    rows = []
    for name, start, end in sorted(pieces, key=lambda piece: (piece[1] - piece[2], piece[1]))[
        :COMMANDS_LISTED
    ]:
        usage = used.get(name, {})
        rows.append(
            CommandRow(
                name,
                start,
                end - start,
                min(1.0, (end - start) / length),
                _most(stored.timestamps, memory, start, end) if memory is not None else None,
                usage.get("alone_s"),
                usage.get("shared_s"),
                query.link(start=start, end=max(end, start + 1)),
            )
        )
    return rows


def _most(timestamps: Sequence[int], column: Sequence[float], start: int, end: int) -> float | None:
    points = column[bisect_left(timestamps, start) : bisect_right(timestamps, end)]
    return max((value for value in points if value == value), default=None)  # noqa: PLR0124 - not NaN


def _accelerator_memory(summaries: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return the most MiB that each accelerator had in use."""
    accelerators = []
    for series, summary in summaries.items():
        parts = series.split("|")
        if parts[0] == "gpu_usage" and parts[-2:] == ["allocated_mem_value", "max"]:
            accelerators.append((f"gpu_{parts[1]}", summary["max"]))
    return accelerators


def charted_series(ids: Iterable[str]) -> list[ChartedSeries]:
    """Return the series that can be charted, in order; a second accelerator of the same name gets a number."""
    series_by_name: dict[str, ChartedSeries] = {}
    for series in ids:
        name = _series_name(series)
        if name is None:
            continue
        numbered, at = name, 1
        while numbered in series_by_name:
            at += 1
            numbered = f"{name}_{at}"
        series_by_name[numbered] = ChartedSeries(numbered, series, series.removesuffix("max") + "avg")
    return list(series_by_name.values())


def choose_series(
    known: Sequence[ChartedSeries], requested: str, means: Mapping[str, float]
) -> list[ChartedSeries]:
    """Return the series asked for by name, else cpu, memory and the worst accelerators.

    These are the one that is used least and the one whose memory is fullest, by the `means` of series.
    """
    by_name = {series.name: series for series in known}
    names = [name for name in dict.fromkeys(requested.split(",")) if name in by_name]
    if not names:
        names = [name for name in ("cpu", "memory") if name in by_name]
        for field, sign in (("util_percent", -1), ("allocated_mem_percent", 1)):
            of_kind = [series for series in known if series.most.endswith(f"|{field}|max")]
            if of_kind:
                names.append(max(of_kind, key=lambda series: sign * means.get(series.most, 0.0)).name)
    return [by_name[name] for name in names[:SERIES_SHOWN_MOST]]


def _series_name(series: str) -> str | None:
    parts = series.split("|")
    if parts in (["cpu", "max"], ["memory", "max"]):
        return parts[0]
    if len(parts) < 4 or parts[0] != "gpu_usage" or parts[-1] != "max" or parts[-2] not in ACCELERATOR_FIELDS:
        return None
    return f"gpu_{parts[1]}_{ACCELERATOR_FIELDS[parts[-2]]}"
