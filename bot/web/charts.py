"""Charts: series of values -> positions of lines, ticks and labels; `charts.html` draws the SVG and the table.

A page makes its charts with `chart` and shows each with the macro `draw`: with axes, with values on hover and in a
table, and with what is behind each point one click away, where `links` say so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import quote

from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

WIDTH, HEIGHT = 560, 150  # of the plot, in units of the drawing
DASH = 6  # width of a lone day in a line of 90
MOST_TICKS = 4
MOST_MARKS = 5  # labels under the plot
DAYS = "Day (UTC)"
NOTHING = "–"  # noqa: RUF001 - a dash stands for no value
NICE_SECONDS = (10, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 28_800, 43_200, 86_400)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One value: its position, its tooltip, and where a click leads."""

    x: float
    y: float
    text: str
    href: str = ""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One series: its name, its path and its points."""

    name: str
    path: str
    points: tuple[Point, ...]


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A label under the plot."""

    x: float
    text: str
    anchor: str  # of the text: start, middle or end


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart of some series over days, or over what else the labels name."""

    title: str
    over: str  # what the labels are, as in "Day (UTC)"
    lines: tuple[Line, ...]
    ticks: tuple[tuple[float, str], ...]  # y, label
    marks: tuple[Mark, ...]
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


def sparkline(rates: Sequence[float | None], *, width: int = 90, height: int = 18) -> str:
    """Return the path of pass rates, 0 at the bottom; days without a rate leave a gap.

    A lone day is a dash at its height, and where there is no other one it stands on a stem.
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
    """Return the path of a bar for each count, the highest as high as the chart; every count but 0 can be seen."""
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

    Of `seconds` the axis names round times. `links` are addresses of ours, one for each label, "" for none: what is
    behind its values. `over` says what the labels are.
    """
    links = tuple(links) or ("",) * len(labels)
    known = [value for _, values in series for value in values if value is not None]
    ticks = _even(top) if top else _ticks(max(known, default=0), seconds=seconds)
    upper = ticks[-1] or 1
    texts = [[NOTHING if value is None else show(value) for value in values] for _, values in series]
    lines = tuple(
        _line(name, labels, values, shown, links, upper=upper)
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
    """Return where the commits of days (as 2026-11-25) are, for `links`; without a branch those of the default one."""
    home = f"/hud/{repo}/{quote(branch)}" if branch else f"/hud/{repo}"
    return [f"{home}?on={day}" for day in days]


def points(line: Line) -> Markup:
    """Return a dot with a tooltip for each value of a line.

    Written here, not in a template: a page may have 3,000 of them.
    """
    html = "".join(map(_point, line.points))
    return Markup(html)  # noqa: S704 - words are escaped below


def values(chart: Chart) -> Markup:
    """Return the rows of the table with the values of a chart."""
    days = zip(chart.labels, chart.links, chart.cells, strict=True)
    return Markup("\n".join(_row(*day) for day in days))  # noqa: S704 - escaped below


def _point(one: Point) -> str:
    dot = f"<circle cx={one.x:g} cy={one.y:g} r=3><title>{escape(one.text)}</title></circle>"
    return f'<a href="{escape(one.href)}" tabindex=-1>{dot}</a>' if one.href else dot


def _row(label: str, href: str, cells: Iterable[str]) -> str:
    html = "".join(f"<td>{escape(cell)}" for cell in cells)
    name = f'<a href="{escape(href)}">{escape(label)}</a>' if href else escape(label)
    return f"<tr><th scope=row>{name}</th>{html}"


def _marks(labels: Sequence[str]) -> tuple[Mark, ...]:
    """Return up to five labels, evenly spread, the first and the last among them."""
    last = len(labels) - 1
    count = min(len(labels), MOST_MARKS)
    places = sorted({round(at * last / max(count - 1, 1)) for at in range(count)})
    step = WIDTH / max(last, 1)
    return tuple(
        Mark(
            x=round(at * step, 1),
            text=labels[at],
            anchor="start" if at == 0 else "end" if at == last else "middle",
        )
        for at in places
    )


def _line(
    name: str,
    labels: Sequence[str],
    values: Sequence[float | None],
    texts: Sequence[str],
    links: Sequence[str],
    *,
    upper: float,
) -> Line:
    step = WIDTH / max(len(values) - 1, 1)
    points, path, pen_down = [], [], False
    for at, value in enumerate(values):
        if value is None:
            pen_down = False
            continue
        x, y = round(at * step, 1), _y(value, upper)
        path.append(f"{'L' if pen_down else 'M'}{x:g} {y:g}")
        pen_down = True
        points.append(Point(x=x, y=y, text=f"{labels[at]}: {name} {texts[at]}", href=links[at]))
    return Line(name=name, path="".join(path), points=tuple(points))


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
            (one for one in NICE_SECONDS if one * MOST_TICKS >= most), 86_400 * math.ceil(most / 345_600)
        )
    else:
        step = _nice(most / MOST_TICKS)
    return [float(step * at) for at in range(math.ceil(most / step) + 1)]


def _nice(least: float) -> int:
    size: int = 10 ** max(0, math.floor(math.log10(least)) if least > 0 else 0)
    return next(size * by for by in (1, 2, 5, 10) if size * by >= least)
