"""What are a chart's points and values in HTML? Written here, not in a template: a page may have 3,000 of them."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.domain.charts import Chart, Line


def points(line: Line) -> Markup:
    """Return a dot for each value of a line, which says the value to whoever points at it."""
    said = "".join(
        f"<circle cx={one.x:g} cy={one.y:g} r=3><title>{escape(one.said)}</title></circle>"
        for one in line.points
    )
    return Markup(said)  # noqa: S704 - words are escaped above


def values(chart: Chart) -> Markup:
    """Return the rows of the table that says the same as the drawing."""
    days = zip(chart.labels, chart.cells, strict=True)
    return Markup("\n".join(_row(day, cells) for day, cells in days))  # noqa: S704 - escaped below


def _row(day: str, cells: Iterable[str]) -> str:
    said = "".join(f"<td>{escape(cell)}" for cell in cells)
    return f"<tr><th scope=row>{escape(day)}</th>{said}"
