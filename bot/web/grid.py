"""What is a line of the grid in HTML? Written here, not in a template: a page may have 1,500 cells."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from markupsafe import Markup

from bot.domain.words import duration, plural
from bot.web.html import SIGNS, word

if TYPE_CHECKING:
    from bot.domain.matrix import Cell, Line, Matrix


def cells(grid: Matrix, line: Line, state: str) -> Markup:
    """Return the cells of one commit; `state` is the query of the page they are on."""
    start = f'<td><a href="{escape(state)}&cell='
    parts = [
        start + _link(one, column.name) if one else "<td>"
        for one, column in zip(line.cells, grid.columns, strict=True)
    ]
    return Markup("".join(parts))  # noqa: S704 - every word of it is escaped


def _link(one: Cell, name: str) -> str:
    """Return what follows the address of the page: the cell's key, its words, its signs."""
    said = f"{word(name)}: {one.said}"
    if one.seconds is not None:
        said += f", {duration(one.seconds)}"
    if one.earlier:
        said += f", {plural(len(one.earlier), 'earlier attempt')}"
    marks = SIGNS[one.tone]
    marks += f"<sub>{len(one.rows)}</sub>" if len(one.rows) > 1 else ""
    marks += f"<sup>+{len(one.earlier)}</sup>" if one.earlier else ""
    hidden = f'<span class="hidden"> {escape(one.said)}</span>'
    return f'{escape(one.key)}#cell" class="c {one.tone}" title="{escape(said)}">{marks}{hidden}</a>'
