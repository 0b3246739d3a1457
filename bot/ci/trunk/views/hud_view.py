"""The grid as its page shows it: groups folded, cells as markup, and what is broken above them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING

from markupsafe import Markup

from bot.ci.trunk import broken_columns, cells
from bot.ci.trunk.grid import Grid, key_of_column
from bot.ci.trunk.views import hud_filter
from bot.core import escaping
from bot.core.text import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.ci.trunk.cells import Cell
    from bot.ci.trunk.grid import Column, Line
    from bot.ci.trunk.tables import CommitRow
    from bot.ci.trunk.views.hud_filter import Filter

COLUMNS_MOST = 300
FAILING_MOST = 8  # names of a line's failing jobs, for narrow screens
NAME_MOST = 160
LETTERS = 3  # of a group's name, over one column
LINE_MOST = 200
CLASSES = {
    "O": "o", "F": "f", "X": "x", "T": "x", "C": "i", "N": "i", "S": "i", "Q": "w", "?": "w", "~": "w", "U": "i",
    "A": "i",
}  # fmt: skip
# characters of a name over its column: its beginning, and more of its end, which tells it from others
LABEL_MOST = 32
LONE = "l"  # a failure that is likely a flake


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A column of the page: one of the grid's, or several that are folded."""

    places: tuple[int, ...]
    name: str
    group: str
    folded: bool = False
    blocking: bool = False
    broken: bool = False
    stale: int = 0  # columns without a result on the newest commits
    flakes: frozenset[int] = frozenset()  # lines on which it failed alone, between passes

    @property
    def key(self) -> str:
        """A short name for the column in addresses."""
        return key_of_column(self.name)

    @property
    def label(self) -> str:
        """The name as it stands over the column."""
        name = escaping.one_line(self.name)
        start = LABEL_MOST // 3
        return name if len(name) <= LABEL_MOST else f"{name[:start]}…{name[start + 1 - LABEL_MOST :]}"


@dataclass(frozen=True, kw_only=True)
class Group:
    """A heading over some columns."""

    name: str
    width: int

    @property
    def fits(self) -> bool:
        """Whether its name fits above its columns."""
        return len(self.name) <= self.width * LETTERS


@dataclass(frozen=True, kw_only=True)
class ShownLine:
    """A line of the page."""

    line: Line
    markup: Markup  # its cells
    failing: tuple[tuple[str, str], ...]  # names of jobs, and the keys of their columns
    outage: bool
    green_before: str | None  # where it is red: the newest green commit before it

    @property
    def commit(self) -> CommitRow:
        """The commit."""
        return self.line.commit

    @property
    def title(self) -> str:
        """The commit's title, without the number that is shown beside it."""
        return self.commit["title"].removesuffix(f" (#{self.commit['pr_number']})")


@dataclass(frozen=True, kw_only=True)
class View:
    """Everything the page shows of the grid."""

    columns: tuple[Shown, ...]
    groups: tuple[Group, ...]
    lines: tuple[ShownLine, ...]
    left_out: int  # columns beyond the limit
    links: str  # the address of a cell without its row and column


def make_view(grid: Grid, chosen: Filter, base: str, broken: Collection[int]) -> View:
    """Return the page's view of a grid; `base` is its address without parameters, `broken` are places of columns."""
    wanted = chosen.columns(grid)
    newest = replace(grid, lines=grid.on_branch().lines[: broken_columns.STALE_AFTER])
    cells_of: dict[int, broken_columns.Column] = {place: grid.column(place) for place in sorted(wanted)}
    stale = frozenset(place for place in cells_of if broken_columns.is_stale(newest.column(place)))
    shown, left_out = _columns(grid, cells_of, chosen, broken, stale)
    links = f"{base}{chosen.query(cell='')}"
    links += "&cell=" if "?" in links else "?cell="
    lines = tuple(
        ShownLine(
            line=line,
            markup=_markup(at, line, shown, links),
            failing=_failing(grid, line, wanted),
            outage=broken_columns.is_outage(_failing_workflows(grid, line)),
            green_before=green,
        )
        for at, (line, green) in enumerate(zip(grid.lines, grid.greens_before(), strict=True))
    )
    return View(
        columns=shown,
        groups=_groups(shown),
        lines=lines,
        left_out=left_out,
        links=links,
    )


def find_cell(grid: Grid, key: str) -> tuple[Line, Column, Cell] | None:
    """Return the cell that a page's address asks for, as `{beginning of the SHA}.{key of the column}`."""
    sha, _, wanted = key.partition(".")
    place = next((at for at, column in enumerate(grid.columns) if key_of_column(column.name) == wanted), None)
    line = next((one for one in grid.lines if sha and one.commit["sha"].startswith(sha)), None)
    cell = line.cells.get(place) if line is not None and place is not None else None
    return (line, grid.columns[place], cell) if line and place is not None and cell else None


def _columns(
    grid: Grid,
    cells_of: Mapping[int, broken_columns.Column],
    chosen: Filter,
    broken: Collection[int],
    stale: frozenset[int],
) -> tuple[tuple[Shown, ...], int]:
    """Return the columns to show: those with trouble or asked for, the others folded group by group."""
    folded: dict[str, list[int]] = {}
    singles: list[Shown] = []
    for place, of_column in cells_of.items():
        column, troubled = grid.columns[place], hud_filter.has_trouble(of_column)
        if troubled or chosen.keeps(column):
            singles.append(
                Shown(
                    places=(place,),
                    name=column.name,
                    group=column.group,
                    blocking=column.blocking,
                    broken=place in broken,
                    stale=place in stale,
                    flakes=broken_columns.flakes(of_column) if troubled else frozenset(),
                )
            )
        else:
            folded.setdefault(column.group, []).append(place)
    kept, left_out = singles[:COLUMNS_MOST], max(0, len(singles) - COLUMNS_MOST)
    order = {column.group: at for at, column in reversed(list(enumerate(grid.columns)))}
    made = [
        Shown(
            places=tuple(places),
            name=grid.columns[places[0]].name,
            group=group,
            folded=len(places) > 1,
            stale=len(stale.intersection(places)),
        )
        for group, places in folded.items()
    ]
    return tuple(
        sorted([*made, *kept], key=lambda one: (order[one.group], not one.folded, one.places))
    ), left_out


def _groups(shown: Sequence[Shown]) -> tuple[Group, ...]:
    found: list[Group] = []
    for one in shown:
        if found and found[-1].name == one.group:
            last = found[-1]
            found[-1] = Group(name=last.name, width=last.width + 1)
        else:
            found.append(Group(name=one.group, width=1))
    return tuple(found)


def _markup(at: int, line: Line, shown: Sequence[Shown], links: str) -> Markup:
    """Return a line's cells. Most are green, and those are as short as can be."""
    parts = []
    sha = line.commit["sha"][:12]
    for one in shown:
        if one.folded:
            parts.append(_folded(line, one))
        elif (cell := line.cells.get(one.places[0])) is None:
            parts.append("<td>")
        elif cell.character == cells.SUCCESS:
            parts.append("<td class=o>O")
        elif cell.character in {cells.FAILURE, cells.TIMED_OUT, cells.FLAKY, cells.ALLOWED}:
            parts.append(_linked(one, cell, f"{links}{sha}.{one.key}#cell", lone=at in one.flakes))
        else:
            parts.append(f"<td class={CLASSES[cell.character]}>{cell.character}{_count(cell)}")
    return Markup("".join(parts))  # noqa: S704 - made of our own words, and of escaped ones


def _folded(line: Line, one: Shown) -> str:
    found = {cell.character for place in one.places if (cell := line.cells.get(place)) is not None}
    if not found:
        return "<td>"
    worst = min(found, key=cells.WORST.index)
    return f"<td class={CLASSES[worst]}>{worst}"


def _linked(one: Shown, cell: Cell, address: str, *, lone: bool) -> str:
    lone = lone and cell.broken
    words = f"{escaping.shorten(one.name, NAME_MOST)}: {cells.WORDS[cell.character]}"
    words += ", but passed before and after" if lone else ""
    words += f", {plural(cell.tests_failed, 'failed test')}" if cell.tests_failed else ""
    words += ", infrastructure" if cell.infra else ""
    if cell.line:
        words += f": {escaping.shorten(cell.line, LINE_MOST)}"
    title = escape(escaping.one_line(words))
    return (
        f'<td class={LONE if lone else CLASSES[cell.character]}><a href="{escape(address)}" title="{title}">'
        f"{cell.character}{_count(cell)}</a>"
    )


def _count(cell: Cell) -> str:
    return f"<sub>{cell.count[0]}/{cell.count[1]}</sub>" if cell.count else ""


def _failing_workflows(grid: Grid, line: Line) -> list[str]:
    columns = [grid.columns[at] for at, cell in line.cells.items() if cell.broken]
    return [broken_columns.workflow_of(column.name, column.workflow) for column in columns]


def _failing(grid: Grid, line: Line, wanted: set[int]) -> tuple[tuple[str, str], ...]:
    places = sorted(at for at, cell in line.cells.items() if at in wanted and cell.broken)
    names = [grid.columns[place].name for place in places[:FAILING_MOST]]
    return tuple((name, key_of_column(name)) for name in names)
