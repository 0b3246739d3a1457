"""What is a line of the grid in HTML? Written here, not in a template: a page may have 1,500 cells."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from markupsafe import Markup

from bot.domain.words import duration, plural
from bot.web.html import SIGNS, word

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.domain.matrix import Cell, Line, Matrix


def cells(grid: Matrix) -> Callable[[Line, str], Markup]:
    """Return what makes the cells of a line, given what else the query of their page says."""
    names = [escape(word(column.name)) for column in grid.columns]

    def made(line: Line, rest: str) -> Markup:
        pairs = zip(line.cells, names, strict=True)
        end = escape(rest)
        said = "".join([_link(one, name, end) if one else "<td>" for one, name in pairs])
        return Markup(said)  # noqa: S704 - what comes from outside is escaped above

    return made


def _link(one: Cell, name: str, rest: str) -> str:
    """Return a cell: it leads to its jobs, and says in words what it shows."""
    seconds = one.seconds
    took = "" if seconds is None else f", {duration(seconds)}"
    again = f", {plural(len(one.earlier), 'earlier attempt')}" if one.earlier else ""
    marks = SIGNS[one.tone]
    marks += f"<sub>{len(one.rows)}</sub>" if len(one.rows) > 1 else ""
    marks += f"<sup>+{len(one.earlier)}</sup>" if one.earlier else ""
    title = f"{name}: {one.said}{took}{again}"
    link = f'<a href="?cell={one.key}{rest}#cell" class="c {one.tone}" title="{title}">'
    return f'<td>{link}{marks}<span class="hidden"> {one.said}</span></a>'
