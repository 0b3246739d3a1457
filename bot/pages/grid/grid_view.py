"""The grid as its page shows it: what a reader asks for, groups folded, cells as markup."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

from markupsafe import Markup

from bot.core import escaping
from bot.core.json_fields import iso_time
from bot.core.text import plural
from bot.jobs import branch_history, cells, job_names
from bot.jobs.branch_standing import STANDING_LINES
from bot.jobs.grid import FILTER_MOST, RERUNS, UNSTABLE, Grid, key_of_column
from bot.queue.sums import DAY
from bot.web import addresses
from bot.web import openapi as op
from bot.web import parameters as declare
from bot.web.answers import matching
from bot.web.openapi import INVALID_PARAMETER

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bot.jobs.cells import Cell
    from bot.jobs.grid import Column, GridLine
    from bot.jobs.tables import CommitRow
    from bot.web.parameters import Parameter, Query

LINES_MOST = 500
HIDABLE = {"reruns": ("rerun_disabled_tests", "mem_leak_check"), "unstable": ("unstable",)}
GROUPS = {"reruns": RERUNS, "unstable": UNSTABLE}
ONLY_CHOICES = ("", "failing", "blocking")
OPEN_MOST = 40  # groups
CALM = frozenset((cells.SUCCESS, cells.NEUTRAL, cells.SKIPPED)) | cells.UNFINISHED
_FLAGS = f"({'|'.join(HIDABLE)})"
PER = declare.whole("per", LINES_MOST, "how many commits", default=STANDING_LINES)
ON = declare.day("on", "only commits up to the end of this day (UTC)")
GROUP = declare.text("group", "only jobs of this group", most=FILTER_MOST)
CHOSEN = declare.choice("only", ONLY_CHOICES, "only jobs of this kind")
SHARDS = declare.flag("shards", "every shard as a column of its own")
FOLDS = declare.parsed(
    "groups", str, "0: no group is folded", parse=lambda text: text != "0", default=True, only="page"
)
CELL = declare.text("cell", "the cell whose runs are shown", most=FILTER_MOST, only="page")
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
class ShownCell:
    """A column of the page: one of the grid's, or several folded ones."""

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
        """The name above the column."""
        name = escaping.one_line(self.name)
        start = LABEL_MOST // 3
        return name if len(name) <= LABEL_MOST else f"{name[:start]}…{name[start + 1 - LABEL_MOST :]}"


@dataclass(frozen=True, kw_only=True)
class ShownGroup:
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

    line: GridLine
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
class GridView:
    """Everything the page shows of the grid."""

    columns: tuple[ShownCell, ...]
    groups: tuple[ShownGroup, ...]
    lines: tuple[ShownLine, ...]
    left_out: int  # columns beyond the limit
    links: str  # the address of a cell without its row and column


@dataclass(frozen=True, kw_only=True)
class GridFilter:
    """The choice of lines and columns."""

    per: int = STANDING_LINES
    before: str | None = None  # a commit: the lines after it
    on: int | None = None  # a day: its commits and older ones
    name: str = ""  # part of a column's name, or /pattern/
    group: str = ""
    hide: tuple[str, ...] = ()
    only: str = ""
    shards: bool = False
    folds: bool = True  # columns without trouble are folded, group by group
    open: tuple[str, ...] = ()  # groups that are not
    cell: str = ""  # the one whose runs are shown

    @property
    def shows_newest(self) -> bool:
        """Whether it shows the newest commits, which decide how a branch stands, and each job as one column."""
        return self.per == STANDING_LINES and not self.before and self.on is None and not self.shards

    @property
    def until(self) -> int | None:
        """The time of the newest commit that may be shown; None: any."""
        return None if self.on is None or self.before else (self.on + 1) * DAY - 1

    def query(self, **changes: object) -> str:
        """Return the query string of this filter with some changes; empty where nothing is chosen."""
        kept = self.chosen(**changes)
        return "?" + urlencode(kept) if kept else ""

    def chosen(self, **changes: object) -> dict[str, object]:
        """Return the filter with some changes, by name of parameter."""
        chosen: dict[str, object] = {
            "per": "" if self.per == STANDING_LINES else self.per,
            "before": self.before or "",
            "on": "" if self.on is None else iso_time(self.on * DAY)[:10],
            "name": self.name,
            "group": self.group,
            "hide": ",".join(self.hide),
            "only": self.only,
            "shards": "1" if self.shards else "",
            "groups": "" if self.folds else "0",
            "open": ",".join(self.open),
            **changes,
        }
        return {name: value for name, value in chosen.items() if value not in {"", None}}

    def columns(self, grid: Grid) -> set[int]:
        """Return the places of the requested columns."""
        wanted = set(range(len(grid.columns)))
        if self.name:
            matches = job_names.name_test(self.name)
            wanted = {place for place in wanted if matches(grid.columns[place].name)}
        if self.group:
            wanted = {place for place in wanted if grid.columns[place].group == self.group}
        flags = [flag for word in self.hide for flag in HIDABLE[word]]
        groups = {GROUPS[word] for word in self.hide}
        wanted = {
            place
            for place in wanted
            if (column := grid.columns[place]).group not in groups
            and not any(flag in column.name for flag in flags)
        }
        if self.only == "blocking":
            wanted = {place for place in wanted if grid.columns[place].blocking}
        if self.only == "failing":
            failing = {at for line in grid.lines for at, cell in line.cells.items() if cell.broken}
            wanted &= failing
        return wanted

    def keeps(self, column: Column) -> bool:
        """Whether a column is shown unfolded although nothing is wrong with it."""
        return not self.folds or column.group in self.open or bool(self.name or self.group or self.only)


def _parse_name(text: str) -> str:
    name = escaping.one_line(text)
    if len(name) > FILTER_MOST:
        raise INVALID_PARAMETER.because(f"name has at most {FILTER_MOST} characters")
    try:
        job_names.name_test(name)
    except ValueError as error:
        raise INVALID_PARAMETER.because(f"name: {error}") from None
    return name


def _hidden(text: str) -> tuple[str, ...]:
    hide = _filter_words(text)
    if unknown := [word for word in hide if word not in HIDABLE]:
        detail = f"hide has {unknown[0][:40]!r}: it may have {', '.join(HIDABLE)}"
        raise INVALID_PARAMETER.because(detail)
    return hide


def _commit(text: str) -> str:
    if not addresses.SHA.fullmatch(text):
        raise INVALID_PARAMETER.because("before must be the `next` of an earlier answer: a commit's SHA")
    return text


def _opened(text: str) -> tuple[str, ...]:
    return _filter_words(text)[:OPEN_MOST]


BEFORE: Parameter[str | None] = declare.parsed(
    "before",
    Annotated[str, matching(addresses.SHA)],
    "`next` of the page before",
    parse=_commit,
    default=None,
)
NAME = declare.parsed(
    "name",
    op.Text,
    "only jobs whose name has this in it, or matches /pattern/ (RE2)",
    parse=_parse_name,
    default="",
)
HIDE: Parameter[tuple[str, ...]] = declare.parsed(
    "hide",
    Annotated[str, matching(f"{_FLAGS}(,{_FLAGS})*")],
    "jobs left out, by kind; commas between",
    parse=_hidden,
    default=(),
)
OPEN: Parameter[tuple[str, ...]] = declare.parsed(
    "open", op.Text, "groups that are not folded", parse=_opened, default=(), only="page"
)
PARAMETERS = (PER, BEFORE, ON, NAME, GROUP, HIDE, CHOSEN, SHARDS, FOLDS, OPEN, CELL)


def grid_filter_of(query: Query) -> GridFilter:
    """Return the filter of a request."""
    return GridFilter(
        per=query[PER],
        before=query[BEFORE],
        on=query[ON],
        name=query[NAME],
        group=query[GROUP],
        hide=query[HIDE],
        only=query[CHOSEN],
        shards=query[SHARDS],
        folds=query[FOLDS],
        open=query[OPEN],
        cell=query[CELL],
    )


def has_trouble(column: branch_history.ColumnCells) -> bool:
    """Whether something in a column failed, perhaps only at first, or was cancelled."""
    return any(cell is not None and cell.character not in CALM for cell in column)


def make_grid_view(grid: Grid, chosen: GridFilter, base: str, broken: Collection[int]) -> GridView:
    """Return the page's view of a grid; `base` is its address without parameters, `broken` are places of columns."""
    wanted = chosen.columns(grid)
    newest = replace(grid, lines=grid.on_branch().lines[: branch_history.STALE_AFTER])
    cells_of: dict[int, branch_history.ColumnCells] = {place: grid.column(place) for place in sorted(wanted)}
    stale = frozenset(place for place in cells_of if branch_history.is_stale(newest.column(place)))
    shown, left_out = _columns(grid, cells_of, chosen, broken, stale)
    links = f"{base}{chosen.query(cell='')}"
    links += "&cell=" if "?" in links else "?cell="
    lines = tuple(
        ShownLine(
            line=line,
            markup=_markup(at, line, shown, links),
            failing=_failing(grid, line, wanted),
            outage=branch_history.is_outage(_failing_workflows(grid, line)),
            green_before=green,
        )
        for at, (line, green) in enumerate(zip(grid.lines, grid.greens_before(), strict=True))
    )
    return GridView(
        columns=shown,
        groups=_groups(shown),
        lines=lines,
        left_out=left_out,
        links=links,
    )


def find_cell(grid: Grid, key: str) -> tuple[GridLine, Column, Cell] | None:
    """Find the cell that an address names as `{beginning of the SHA}.{key of the column}`."""
    sha, _, wanted = key.partition(".")
    place = next((at for at, column in enumerate(grid.columns) if key_of_column(column.name) == wanted), None)
    line = next((line for line in grid.lines if sha and line.commit["sha"].startswith(sha)), None)
    cell = line.cells.get(place) if line is not None and place is not None else None
    return (line, grid.columns[place], cell) if line and place is not None and cell else None


def _filter_words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in text[:1_000].split(",") if word.strip()))


def _columns(
    grid: Grid,
    cells_of: Mapping[int, branch_history.ColumnCells],
    chosen: GridFilter,
    broken: Collection[int],
    stale: frozenset[int],
) -> tuple[tuple[ShownCell, ...], int]:
    """Return the columns to show: those with trouble or requested ones; the others are folded by group."""
    folded: dict[str, list[int]] = {}
    singles: list[ShownCell] = []
    for place, of_column in cells_of.items():
        column, troubled = grid.columns[place], has_trouble(of_column)
        if troubled or chosen.keeps(column):
            singles.append(
                ShownCell(
                    places=(place,),
                    name=column.name,
                    group=column.group,
                    blocking=column.blocking,
                    broken=place in broken,
                    stale=place in stale,
                    flakes=branch_history.flakes(of_column) if troubled else frozenset(),
                )
            )
        else:
            folded.setdefault(column.group, []).append(place)
    kept, left_out = singles[:COLUMNS_MOST], max(0, len(singles) - COLUMNS_MOST)
    order = {column.group: at for at, column in reversed(list(enumerate(grid.columns)))}
    made = [
        ShownCell(
            places=tuple(places),
            name=grid.columns[places[0]].name,
            group=group,
            folded=len(places) > 1,
            stale=len(stale.intersection(places)),
        )
        for group, places in folded.items()
    ]
    return tuple(
        sorted([*made, *kept], key=lambda cell: (order[cell.group], not cell.folded, cell.places))
    ), left_out


def _groups(shown: Sequence[ShownCell]) -> tuple[ShownGroup, ...]:
    groups: list[ShownGroup] = []
    for cell in shown:
        if groups and groups[-1].name == cell.group:
            last = groups[-1]
            groups[-1] = ShownGroup(name=last.name, width=last.width + 1)
        else:
            groups.append(ShownGroup(name=cell.group, width=1))
    return tuple(groups)


def _markup(at: int, line: GridLine, shown: Sequence[ShownCell], links: str) -> Markup:
    """Return the markup of a line's cells. Most are green, and kept as short as possible."""
    parts = []
    sha = line.commit["sha"][:12]
    for column in shown:
        if column.folded:
            parts.append(_folded(line, column))
        elif (cell := line.cells.get(column.places[0])) is None:
            parts.append("<td>")
        elif cell.character == cells.SUCCESS:
            parts.append("<td class=o>O")
        elif cell.character in {cells.FAILURE, cells.TIMED_OUT, cells.FLAKY, cells.ALLOWED}:
            parts.append(_linked(column, cell, f"{links}{sha}.{column.key}#cell", lone=at in column.flakes))
        else:
            parts.append(f"<td class={CLASSES[cell.character]}>{cell.character}{_count(cell)}")
    return Markup("".join(parts))  # noqa: S704 - made of our own words, and of escaped ones


def _folded(line: GridLine, column: ShownCell) -> str:
    characters = {cell.character for place in column.places if (cell := line.cells.get(place)) is not None}
    if not characters:
        return "<td>"
    worst = min(characters, key=cells.WORST.index)
    return f"<td class={CLASSES[worst]}>{worst}"


def _linked(column: ShownCell, cell: Cell, address: str, *, lone: bool) -> str:
    lone = lone and cell.broken
    words = f"{escaping.shorten(column.name, NAME_MOST)}: {cells.WORDS[cell.character]}"
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


def _failing_workflows(grid: Grid, line: GridLine) -> list[str]:
    columns = [grid.columns[at] for at, cell in line.cells.items() if cell.broken]
    return [branch_history.workflow_of(column.name, column.workflow) for column in columns]


def _failing(grid: Grid, line: GridLine, wanted: set[int]) -> tuple[tuple[str, str], ...]:
    places = sorted(at for at, cell in line.cells.items() if at in wanted and cell.broken)
    names = [grid.columns[place].name for place in places[:FAILING_MOST]]
    return tuple((name, key_of_column(name)) for name in names)
