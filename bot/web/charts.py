"""Charts: series of values -> positions of lines, ticks and labels; `charts.html` draws the SVG and the table.

Jobs over time: a bar for each, with when it waited, when it ran, and its steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import quote

from markupsafe import Markup

from bot.core import escaping, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bot.web.blocks import Tone

WIDTH, HEIGHT = 560, 150  # of the plot, in units of the drawing
DASH = 6  # width of a lone day in a line of 90
MOST_TICKS = 4
MOST_MARKS = 5  # labels under the plot
DAYS = "Day (UTC)"
NOTHING = "–"  # noqa: RUF001 - a dash stands for no value
NICE_SECONDS = (10, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200, 86_400)
TIMELINE_WIDTH, TIMELINE_HEIGHT = 1000, 10  # of a bar, in units of the drawing
STEPS_MOST = 100  # of a job
WORDS_MOST = 120  # characters of a step's name


@dataclass(frozen=True, kw_only=True)
class ChartPoint:
    """One value: its position, its tooltip, and where a click leads."""

    x: float
    y: float
    text: str
    href: str = ""


@dataclass(frozen=True, kw_only=True)
class ChartLine:
    """One series: its name, its path and its points."""

    name: str
    path: str
    points: tuple[ChartPoint, ...]


@dataclass(frozen=True, kw_only=True)
class ChartMark:
    """A label under the plot."""

    x: float
    text: str
    anchor: str  # of the text: start, middle or end


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart of some series over days, or over whatever the labels name."""

    title: str
    over: str  # what the labels are, as in "Day (UTC)"
    lines: tuple[ChartLine, ...]
    ticks: tuple[tuple[float, str], ...]  # y, label
    marks: tuple[ChartMark, ...]
    labels: tuple[str, ...]  # of the days, oldest first
    links: tuple[str, ...]  # where a click on each leads; empty: nowhere
    cells: tuple[tuple[str, ...], ...]  # of the table: a row for each day

    @property
    def linked(self) -> bool:
        """Whether clicks on its points lead anywhere."""
        return any(self.links)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(line.points for line in self.lines)


@dataclass(frozen=True, kw_only=True)
class TimelineStep:
    """A step of a job, with its times in epoch milliseconds; its name comes from outside."""

    name: str
    failed: bool
    started_at: int
    ended_at: int


@dataclass(frozen=True, kw_only=True)
class TimelineBar:
    """A job with its times in epoch milliseconds; its name comes from outside."""

    name: str
    url: str | None  # a path on this bot, or where its CI shows it
    tone: Tone
    queued_at: int | None
    started_at: int | None
    ended_at: int | None  # None: it goes on
    steps: tuple[TimelineStep, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DrawnBar:
    """A bar as its page shows it."""

    name: str
    url: str | None
    tone: Tone
    words: str
    drawing: Markup


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """Bars under one axis."""

    began_at: int
    length: str
    bars: tuple[DrawnBar, ...]


def sparkline(rates: Sequence[float | None], *, width: int = 90, height: int = 18) -> str:
    """Return an SVG path of pass rates, 0 at the bottom; days without a rate leave a gap.

    A lone day is a dash at its height; if it is the only one, it stands on a stem.
    """
    step = width / max(len(rates) - 1, 1)
    drawn = [
        None if rate is None else (round(at * step), round((1 - rate) * height))
        for at, rate in enumerate(rates)
    ]
    only = sum(point is not None for point in drawn) == 1
    parts: list[str] = []
    for before, point, after in zip([None, *drawn], drawn, [*drawn[1:], None], strict=False):
        if point is None:
            continue
        x, y = point
        if before is None and after is None:
            start = min(max(x - DASH // 2, 0), width - DASH)
            parts.append((f"M{x} {height}V{y}" if only else "") + f"M{start} {y}h{DASH}")
        else:
            parts.append(f"{'M' if before is None else 'L'}{x} {y}")
    return "".join(parts)


def bars(counts: Sequence[int], *, width: int = 90, height: int = 18) -> str:
    """Return an SVG path with a bar for each count, the highest as high as the chart; every count but 0 is visible."""
    most, step = max(counts, default=0), width / max(len(counts), 1)
    drawn = [(at * step, max(count / most * height, 1.5)) for at, count in enumerate(counts) if count]
    return "".join(f"M{x:g} {height}v-{tall:.1f}h{step - 1:g}V{height}z" for x, tall in drawn)


def chart(
    title: str,
    labels: Sequence[str],
    series: Sequence[tuple[str, Sequence[float | None]]],
    *,
    show: Callable[[float], str],
    seconds: bool = False,
    top: float | None = None,
    over: str = DAYS,
    links: Sequence[str] = (),
) -> Chart:
    """Return a chart of values from 0 up; `show` writes one for people, `top` fixes the upper end.

    With `seconds` the axis names round times. `links` are addresses of ours, one per label, "" for none: what is
    behind its values. `over` says what the labels are.
    """
    links = tuple(links) or ("",) * len(labels)
    known = [value for _, values in series for value in values if value is not None]
    ticks = _even(top) if top else _ticks(max(known, default=0), seconds=seconds)
    upper = ticks[-1] or 1
    texts = [[NOTHING if value is None else show(value) for value in values] for _, values in series]
    lines = tuple(
        _chart_line(name, labels, values, shown, links, upper=upper)
        for (name, values), shown in zip(series, texts, strict=True)
    )
    return Chart(
        title=title,
        over=over,
        lines=lines,
        ticks=tuple((_y(value, upper), show(value)) for value in ticks),
        marks=_marks(labels),
        labels=tuple(labels),
        links=links,
        cells=tuple(zip(*texts, strict=True)),
    )


def commits_of_days(repo: str, days: Iterable[str], branch: str = "") -> list[str]:
    """Return links to the commits of days (as 2026-11-25) on a branch, by default the default branch."""
    home = f"/hud/{repo}/{quote(branch)}" if branch else f"/hud/{repo}"
    return [f"{home}?on={day}" for day in days]


def points(line: ChartLine) -> Markup:
    """Return a dot with a tooltip for each value of a line.

    Written here, not in a template: a page may have 3,000 of them.
    """
    html = "".join(map(_point, line.points))
    return Markup(html)  # noqa: S704 - words are escaped below


def values(chart: Chart) -> Markup:
    """Return the rows of the table with the values of a chart."""
    days = zip(chart.labels, chart.links, chart.cells, strict=True)
    return Markup("\n".join(_row(*day) for day in days))  # noqa: S704 - escaped below


def timeline(bars: Sequence[TimelineBar], *, now: int) -> Timeline | None:
    """Place bars on an axis from the first time to the last, ordered by start; None if no bar has a time."""
    known = [bar for bar in bars if bar.queued_at is not None or bar.started_at is not None]
    if not known:
        return None
    began = min(_first_time(bar) for bar in known)
    ended = max(max(_first_time(bar), bar.ended_at or now) for bar in known)
    axis = _Axis(began, max(ended - began, 1), now)
    return Timeline(
        began_at=began,
        length=text.duration((ended - began) / 1000),
        bars=tuple(axis.drawn(bar) for bar in sorted(known, key=lambda bar: (_first_time(bar), bar.name))),
    )


def _point(point: ChartPoint) -> str:
    dot = f"<circle cx={point.x:g} cy={point.y:g} r=3><title>{escape(point.text)}</title></circle>"
    return f'<a href="{escape(point.href)}" tabindex=-1>{dot}</a>' if point.href else dot


def _row(label: str, href: str, cells: Iterable[str]) -> str:
    html = "".join(f"<td>{escape(cell)}" for cell in cells)
    name = f'<a href="{escape(href)}">{escape(label)}</a>' if href else escape(label)
    return f"<tr><th scope=row>{name}</th>{html}"


def _marks(labels: Sequence[str]) -> tuple[ChartMark, ...]:
    """Return up to five labels, evenly spread, the first and the last among them."""
    last = len(labels) - 1
    count = min(len(labels), MOST_MARKS)
    places = sorted({round(at * last / max(count - 1, 1)) for at in range(count)})
    step = WIDTH / max(last, 1)
    return tuple(
        ChartMark(
            x=round(at * step, 1),
            text=labels[at],
            anchor="start" if at == 0 else "end" if at == last else "middle",
        )
        for at in places
    )


def _chart_line(
    name: str,
    labels: Sequence[str],
    values: Sequence[float | None],
    texts: Sequence[str],
    links: Sequence[str],
    *,
    upper: float,
) -> ChartLine:
    step = WIDTH / max(len(values) - 1, 1)
    points, path, pen_down = [], [], False
    for at, value in enumerate(values):
        if value is None:
            pen_down = False
            continue
        x, y = round(at * step, 1), _y(value, upper)
        path.append(f"{'L' if pen_down else 'M'}{x:g} {y:g}")
        pen_down = True
        points.append(ChartPoint(x=x, y=y, text=f"{labels[at]}: {name} {texts[at]}", href=links[at]))
    return ChartLine(name=name, path="".join(path), points=tuple(points))


def _y(value: float, upper: float) -> float:
    return round(HEIGHT * (1 - min(value, upper) / upper), 1)


def _even(top: float) -> list[float]:
    return [0, top / 2, top]


def _ticks(most: float, *, seconds: bool) -> list[float]:
    """Return up to five round values from 0 to at least `most`."""
    if most <= 0:
        return [0, 1]
    if seconds:
        step = next(
            (seconds_apart for seconds_apart in NICE_SECONDS if seconds_apart * MOST_TICKS >= most),
            86_400 * math.ceil(most / 345_600),
        )
    else:
        step = _nice(most / MOST_TICKS)
    return [float(step * at) for at in range(math.ceil(most / step) + 1)]


def _nice(least: float) -> int:
    size: int = 10 ** max(0, math.floor(math.log10(least)) if least > 0 else 0)
    return next(size * by for by in (1, 2, 5, 10) if size * by >= least)


def _first_time(bar: TimelineBar) -> int:
    return min(at for at in (bar.queued_at, bar.started_at) if at is not None)


class _Axis:
    """The time axis of a drawing."""

    def __init__(self, began: int, length: int, now: int) -> None:
        self._began, self._length, self._now = began, length, now

    def drawn(self, bar: TimelineBar) -> DrawnBar:
        """Return a bar drawn."""
        queued, started = _first_time(bar), bar.started_at
        ended = self._now if bar.ended_at is None else bar.ended_at
        parts = []
        if started is None or started > queued:
            parts.append(self._part("queue", queued, ended if started is None else started, at=3, height=4))
        if started is not None:
            parts.append(self._part(bar.tone, started, ended))
            parts += [
                self._part(
                    "step bad" if step.failed else "step", step.started_at, step.ended_at, _step_words(step)
                )
                for step in bar.steps[:STEPS_MOST]
            ]
        words = _bar_words(queued, started, bar.ended_at, self._now)
        drawing = (
            f'<svg class="bar" viewBox="0 0 {TIMELINE_WIDTH} {TIMELINE_HEIGHT}" preserveAspectRatio="none" role="img" '
            f'aria-label="{escape(words)}">{"".join(parts)}</svg>'
        )
        return DrawnBar(
            name=bar.name,
            url=bar.url,
            tone=bar.tone,
            words=words,
            drawing=Markup(drawing),  # noqa: S704 - words from outside are escaped below
        )

    def _part(
        self, kind: str, start: int, end: int, words: str = "", *, at: int = 0, height: int = TIMELINE_HEIGHT
    ) -> str:
        left, right = self._place(start), self._place(max(start, end))
        title = f"<title>{escape(words)}</title>" if words else ""
        size = f'x="{left:g}" y="{at}" width="{max(right - left, 1):g}" height="{height}"'
        return f'<rect class="{kind}" {size}>{title}</rect>'

    def _place(self, at: int) -> float:
        return round(min(max(at - self._began, 0) / self._length, 1) * TIMELINE_WIDTH, 1)


def _step_words(step: TimelineStep) -> str:
    name = escaping.shorten(escaping.one_line(step.name), WORDS_MOST) or escaping.NAMELESS
    took = text.duration(max(0, step.ended_at - step.started_at) / 1000)
    return f"{name}: {'failed after ' if step.failed else ''}{took}"


def _bar_words(queued: int, started: int | None, ended: int | None, now: int) -> str:
    """Return "waited 3 min, took 20 min"."""
    if started is None:
        waited = text.duration(max(0, (now if ended is None else ended) - queued) / 1000)
        return f"waiting for {waited}" if ended is None else f"waited {waited}, never ran"
    ran = text.duration(max(0, (now if ended is None else ended) - started) / 1000)
    waited = text.duration(max(0, started - queued) / 1000)
    return f"waited {waited}, " + (f"running for {ran}" if ended is None else f"took {ran}")
