"""A job's page, made from its row and its series: lines, bands, lanes and tables."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from bot.ci.utilization.parse.segments import in_background
from bot.ci.utilization.parse.summary import MEMORY, Summary, mean, summary, weights
from bot.ci.utilization.views import drawing, series_names
from bot.ci.utilization.views.drawing import Band, Line, Piece, Tick, Window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.ci.utilization.parse.blob import Stored
    from bot.ci.utilization.tables import JobRow
    from bot.ci.utilization.views.series_names import Shown

STEPS_DRAWN, STEPS_LISTED, COMMANDS_LISTED, PAIRS_LISTED, SERIES_LISTED = 60, 60, 50, 20, 100
LANE = 11  # units of the drawing


class Step(NamedTuple):
    """A step of the job; times are seconds."""

    name: str
    start: int
    end: int


class Drawn(NamedTuple):
    """A series in the chart: its colour, its line, its numbers in the window."""

    number: int
    name: str
    line: Line
    average: float | None  # of the means, as everywhere; the summary is of the maxima
    summary: Summary | None
    toggle: str


class Bar(NamedTuple):
    """A step or command under the chart."""

    band: Band
    name: str
    start: int
    end: int
    lane: int
    zoom: str


class StepLine(NamedTuple):
    """A step in the table: the most of every series shown."""

    name: str
    start: int
    seconds: int
    most: list[float | None]
    zoom: str


class CommandLine(NamedTuple):
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
class View:
    """What the page shows of a job's series."""

    start: int
    end: int
    whole: bool
    drawn: list[Drawn]
    others: list[tuple[str, str]]  # name, link that adds it
    ticks: list[Tick]
    holes: list[Band]
    steps: list[Bar]
    commands: list[Bar]
    lanes: int
    more: int  # commands that have no place
    zooms: list[tuple[str, str]]  # words, link
    step_lines: list[StepLine]
    command_lines: list[CommandLine]
    commands_more: int
    pairs: list[dict[str, Any]]
    series: list[tuple[str, float | None, Mapping[str, Any]]]  # every one of the job: average and summary
    memory: list[tuple[str, float]]  # the most MiB that each accelerator had in use
    height: int = field(default=0)  # of what stands under the plot


@dataclass(frozen=True, kw_only=True)
class Asked:
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


def draw_job(row: JobRow, stored: Stored, steps: Sequence[Step], asked: Asked) -> View:
    """Return a job's page."""
    known = series_names.charted(stored.series)
    summaries = stored.details.get("summaries", {})
    means = {name: one["avg"] for name, one in summaries.items()}
    shown = series_names.chosen(known, asked.series, means)
    first, last = stored.timestamps[0], max(stored.timestamps[-1], stored.timestamps[0] + 1)
    start, end = _clamped(asked.start or first, first, last), _clamped(asked.end or last, first, last)
    if end <= start:
        start, end = first, last
    whole = (start, end) == (first, last)
    window = Window(stored.timestamps, start, end)
    stands_for = weights(stored.timestamps)[0]
    pieces: list[Piece] = [
        (str(name), int(begin), int(stop))
        for name, begin, stop in row["segments"]
        if asked.everything or not in_background(str(name))
    ]
    inside = [one for one in pieces if one[2] >= start and one[1] <= end]
    placed, more = drawing.pack_lanes(inside)
    bars = [_bar(window, one.piece, one.lane, asked) for one in placed]
    drawn = [
        _drawn(number, one, stored, window, _without(one, shown, asked))
        for number, one in enumerate(shown, 1)
    ]
    count = 1 + max((one.lane for one in placed), default=-1)
    return View(
        start=start,
        end=end,
        whole=whole,
        drawn=drawn,
        others=_others(known, shown, asked, start if not whole else 0, end if not whole else 0),
        ticks=window.ticks(),
        holes=window.holes(),
        steps=[
            bar
            for one in _longest_steps(steps)
            if (bar := _bar(window, (one.name, one.start, one.end), 0, asked))
        ],
        commands=[bar for bar in bars if bar],
        lanes=count,
        more=more,
        zooms=_zooms(start, end, first, last, asked),
        step_lines=[_step_line(one, stored, shown, asked) for one in steps[:STEPS_LISTED]],
        command_lines=_command_lines(inside, stored, row, asked),
        commands_more=max(0, len(inside) - COMMANDS_LISTED),
        pairs=stored.details.get("pairs", [])[:PAIRS_LISTED],
        series=[
            (one.name, mean(stored.series.get(one.mean), stands_for), summaries[one.most])
            for one in known
            if one.most in summaries
        ][:SERIES_LISTED],
        memory=_memory(summaries),
        height=26 + (LANE + 3 if steps else 0) + count * LANE,
    )


def _clamped(at: int, first: int, last: int) -> int:
    return min(max(at, first), last)


def _longest_steps(steps: Sequence[Step]) -> list[Step]:
    chosen = sorted(steps, key=lambda one: one.start - one.end)[:STEPS_DRAWN]
    return sorted(chosen, key=lambda one: one.start)


def _bar(window: Window, piece: Piece, lane: int, asked: Asked) -> Bar | None:
    name, start, end = piece
    band = window.band(start, end)
    if band is None:
        return None
    return Bar(band, name, start, end, lane, asked.link(start=start, end=max(end, start + 1)))


def _drawn(number: int, one: Shown, stored: Stored, window: Window, toggle: str) -> Drawn:
    most, means, times = stored.series[one.most], stored.series.get(one.mean), stored.timestamps
    inside = slice(bisect_left(times, window.start), bisect_right(times, window.end))
    average = None if means is None else mean(means[inside], weights(times)[0][inside])
    return Drawn(number, one.name, window.line(most, means), average, summary(most[inside]), toggle)


def _without(one: Shown, shown: Sequence[Shown], asked: Asked) -> str:
    left = ",".join(other.name for other in shown if other is not one)
    return asked.link(start=asked.start, end=asked.end, series=left)


def _others(
    known: Sequence[Shown], shown: Sequence[Shown], asked: Asked, start: int, end: int
) -> list[tuple[str, str]]:
    names = [one.name for one in shown]
    kept = names[: series_names.SHOWN_MOST - 1]
    return [
        (one.name, asked.link(start=start, end=end, series=",".join([*kept, one.name])))
        for one in known
        if one.name not in names
    ]


def _zooms(start: int, end: int, first: int, last: int, asked: Asked) -> list[tuple[str, str]]:
    middle, length = (start + end) // 2, end - start
    found = []
    if (start, end) != (first, last):
        wider = (_clamped(start - length // 2, first, last), _clamped(end + length // 2, first, last))
        found += [("Whole job", asked.link()), ("Wider", asked.link(start=wider[0], end=wider[1]))]
        if start > first:
            found.append(("Earlier", asked.link(start=max(first, start - length), end=start)))
        if end < last:
            found.append(("Later", asked.link(start=end, end=min(last, end + length))))
    if length >= 2:
        found += [
            ("First half", asked.link(start=start, end=middle)),
            ("Second half", asked.link(start=middle, end=end)),
        ]
    return found


def _step_line(one: Step, stored: Stored, shown: Sequence[Shown], asked: Asked) -> StepLine:
    most = [_most(stored.timestamps, stored.series[each.most], one.start, one.end) for each in shown]
    link = asked.link(start=one.start, end=max(one.end, one.start + 1))
    return StepLine(one.name, one.start, one.end - one.start, most, link)


def _command_lines(pieces: Sequence[Piece], stored: Stored, row: JobRow, asked: Asked) -> list[CommandLine]:
    length = max(1, row["end_at"] - stored.timestamps[0])
    used = {one["command"]: one for one in stored.details.get("usages", [])}
    memory = stored.series.get(MEMORY)
    found = []
    for name, start, end in sorted(pieces, key=lambda one: (one[1] - one[2], one[1]))[:COMMANDS_LISTED]:
        usage = used.get(name, {})
        found.append(
            CommandLine(
                name,
                start,
                end - start,
                min(1.0, (end - start) / length),
                _most(stored.timestamps, memory, start, end) if memory is not None else None,
                usage.get("alone_s"),
                usage.get("shared_s"),
                asked.link(start=start, end=max(end, start + 1)),
            )
        )
    return found


def _most(timestamps: Sequence[int], column: Sequence[float], start: int, end: int) -> float | None:
    points = column[bisect_left(timestamps, start) : bisect_right(timestamps, end)]
    return max((value for value in points if value == value), default=None)  # noqa: PLR0124 - not NaN


def _memory(summaries: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return the most MiB in use of every accelerator."""
    found = []
    for series, one in summaries.items():
        parts = series.split("|")
        if parts[0] == "gpu_usage" and parts[-2:] == ["allocated_mem_value", "max"]:
            found.append((f"gpu_{parts[1]}", one["max"]))
    return found
