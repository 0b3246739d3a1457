"""What a reader of the grid asks for: parameters of its page and its JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

from bot.ci.trunk import cells, name_patterns
from bot.ci.trunk.branch_standing import LINES
from bot.ci.trunk.grid import RERUNS, UNSTABLE
from bot.core import escaping
from bot.core.json_fields import iso_time
from bot.queue.sums import DAY
from bot.web import operations as op
from bot.web import parameters
from bot.web import view_parameters as declare
from bot.web.answers import matching
from bot.web.refusals import INVALID_PARAMETER

if TYPE_CHECKING:
    from bot.ci.trunk import broken_columns
    from bot.ci.trunk.grid import Column, Grid
    from bot.web.asked import Asked, Parameter

LINES_MOST = 500
TEXT_MOST = 200  # characters of a name filter
HIDABLE = {"reruns": ("rerun_disabled_tests", "mem_leak_check"), "unstable": ("unstable",)}
GROUPS = {"reruns": RERUNS, "unstable": UNSTABLE}
ONLY = ("", "failing", "blocking")
OPEN_MOST = 40  # groups
CALM = frozenset((cells.SUCCESS, cells.NEUTRAL, cells.SKIPPED)) | cells.UNFINISHED


@dataclass(frozen=True, kw_only=True)
class Filter:
    """The choice of lines and columns."""

    per: int = LINES
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
        """Whether it shows the commits that tell how a branch stands, each job as one column."""
        return self.per == LINES and not self.before and self.on is None and not self.shards

    @property
    def until(self) -> int | None:
        """The time of the newest commit that may be shown; None: any."""
        return None if self.on is None or self.before else (self.on + 1) * DAY - 1

    def query(self, **changes: object) -> str:
        """Return the query string of this choice, changed; empty where nothing is chosen."""
        kept = self.chosen(**changes)
        return "?" + urlencode(kept) if kept else ""

    def chosen(self, **changes: object) -> dict[str, object]:
        """Return what is chosen, changed, by the names of the parameters."""
        chosen: dict[str, object] = {
            "per": "" if self.per == LINES else self.per,
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
        """Return the places of the columns asked for."""
        wanted = set(range(len(grid.columns)))
        if self.name:
            matches = name_patterns.name_test(self.name)
            wanted = {place for place in wanted if matches(grid.columns[place].name)}
        if self.group:
            wanted = {place for place in wanted if grid.columns[place].group == self.group}
        flags = [flag for word in self.hide for flag in HIDABLE[word]]
        groups = {GROUPS[word] for word in self.hide}
        wanted = {
            place
            for place in wanted
            if (one := grid.columns[place]).group not in groups
            and not any(flag in one.name for flag in flags)
        }
        if self.only == "blocking":
            wanted = {place for place in wanted if grid.columns[place].blocking}
        if self.only == "failing":
            failing = {at for line in grid.lines for at, cell in line.cells.items() if cell.broken}
            wanted &= failing
        return wanted

    def keeps(self, column: Column) -> bool:
        """Whether a column is shown by itself although nothing is wrong with it."""
        return not self.folds or column.group in self.open or bool(self.name or self.group or self.only)


def _name(text: str) -> str:
    name = escaping.one_line(text)
    if len(name) > TEXT_MOST:
        raise INVALID_PARAMETER.because(f"name has at most {TEXT_MOST} characters")
    try:
        name_patterns.name_test(name)
    except ValueError as error:
        raise INVALID_PARAMETER.because(f"name: {error}") from None
    return name


def _hidden(text: str) -> tuple[str, ...]:
    hide = _words(text)
    if unknown := [word for word in hide if word not in HIDABLE]:
        detail = f"hide has {unknown[0][:40]!r}: it may have {', '.join(HIDABLE)}"
        raise INVALID_PARAMETER.because(detail)
    return hide


def _commit(text: str) -> str:
    if not parameters.SHA.fullmatch(text):
        raise INVALID_PARAMETER.because("before must be the `next` of an earlier answer: a commit's SHA")
    return text


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in text[:1_000].split(",") if word.strip()))


def _opened(text: str) -> tuple[str, ...]:
    return _words(text)[:OPEN_MOST]


_FLAGS = f"({'|'.join(HIDABLE)})"
PER = declare.whole("per", LINES_MOST, "how many commits", default=LINES)
BEFORE: Parameter[str | None] = declare.parsed(
    "before",
    Annotated[str, matching(parameters.SHA)],
    "`next` of the page before",
    parse=_commit,
    default=None,
)
ON = declare.day("on", "only commits up to the end of this day (UTC)")
NAME = declare.parsed(
    "name",
    op.Text,
    "only jobs whose name has this in it, or matches /pattern/ (RE2)",
    parse=_name,
    default="",
)
GROUP = declare.text("group", "only jobs of this group", most=TEXT_MOST)
HIDE: Parameter[tuple[str, ...]] = declare.parsed(
    "hide",
    Annotated[str, matching(f"{_FLAGS}(,{_FLAGS})*")],
    "jobs left out, by kind; commas between",
    parse=_hidden,
    default=(),
)
CHOSEN = declare.choice("only", ONLY, "only jobs of this kind")
SHARDS = declare.flag("shards", "every shard as a column of its own")
FOLDS = declare.parsed(
    "groups", str, "0: no group is folded", parse=lambda text: text != "0", default=True, only="page"
)
OPEN: Parameter[tuple[str, ...]] = declare.parsed(
    "open", op.Text, "groups that are not folded", parse=_opened, default=(), only="page"
)
CELL = declare.text("cell", "the cell whose runs are shown", most=TEXT_MOST, only="page")
PARAMETERS = (PER, BEFORE, ON, NAME, GROUP, HIDE, CHOSEN, SHARDS, FOLDS, OPEN, CELL)


def chosen_by(asked: Asked) -> Filter:
    """Return what a request chooses."""
    return Filter(
        per=asked[PER],
        before=asked[BEFORE],
        on=asked[ON],
        name=asked[NAME],
        group=asked[GROUP],
        hide=asked[HIDE],
        only=asked[CHOSEN],
        shards=asked[SHARDS],
        folds=asked[FOLDS],
        open=asked[OPEN],
        cell=asked[CELL],
    )


def has_trouble(column: broken_columns.Column) -> bool:
    """Whether something failed in a column, perhaps only at first, or was cancelled."""
    return any(cell is not None and cell.character not in CALM for cell in column)
