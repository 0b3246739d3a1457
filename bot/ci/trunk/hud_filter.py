"""What a reader of the grid asks for: parameters of its page and its JSON."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from bot.ci.trunk import cells, name_patterns
from bot.ci.trunk.grid import RERUNS, UNSTABLE
from bot.core import escaping
from bot.core.errors import Rejected
from bot.web import parameters

if TYPE_CHECKING:
    from aiohttp import web

    from bot.ci.trunk import trouble
    from bot.ci.trunk.grid import Column, Grid

LINES, LINES_MOST = 50, 500
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
    name: str = ""  # part of a column's name, or /pattern/
    group: str = ""
    hide: tuple[str, ...] = ()
    only: str = ""
    shards: bool = False
    folds: bool = True  # columns without trouble are folded, group by group
    open: tuple[str, ...] = ()  # groups that are not
    cell: str = ""  # the one whose runs are shown

    def query(self, **changes: object) -> str:
        """Return the query string of this choice, changed; empty where nothing is chosen."""
        chosen: dict[str, object] = {
            "per": "" if self.per == LINES else self.per,
            "before": self.before or "",
            "name": self.name,
            "group": self.group,
            "hide": ",".join(self.hide),
            "only": self.only,
            "shards": "1" if self.shards else "",
            "groups": "" if self.folds else "0",
            "open": ",".join(self.open),
            **changes,
        }
        kept = {name: value for name, value in chosen.items() if value not in {"", None}}
        return "?" + urlencode(kept) if kept else ""

    def columns(self, grid: Grid) -> set[int]:
        """Return the places of the columns asked for."""
        wanted = set(range(len(grid.columns)))
        if self.name:
            matches = name_patterns.chooser(self.name)
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


def of(request: web.Request) -> Filter:
    """Read the parameters; raises Rejected 400."""
    given = partial(parameters.given, request)
    name = escaping.one_line(given("name"))
    if len(name) > TEXT_MOST:
        raise Rejected(400, "invalid_parameter", f"name has at most {TEXT_MOST} characters")
    try:
        name_patterns.chooser(name)
    except ValueError as error:
        raise Rejected(400, "invalid_parameter", f"name: {error}") from None
    hide = _words(given("hide"))
    if unknown := [word for word in hide if word not in HIDABLE]:
        allowed = ", ".join(HIDABLE)
        raise Rejected(400, "invalid_parameter", f"hide has {unknown[0][:40]!r}: it may have {allowed}")
    before = given("before")
    return Filter(
        per=parameters.whole(request, "per", default=LINES, most=LINES_MOST),
        before=_commit(before) if before else None,
        name=name,
        group=given("group")[:TEXT_MOST],
        hide=hide,
        only=parameters.choice(request, "only", ONLY),
        shards=given("shards") == "1",
        folds=given("groups") != "0",
        open=_words(given("open"))[:OPEN_MOST],
        cell=given("cell")[:TEXT_MOST],
    )


def _commit(text: str) -> str:
    if not parameters.SHA.fullmatch(text):
        raise Rejected(
            400, "invalid_parameter", "before must be the `next` of an earlier answer: a commit's SHA"
        )
    return text


def has_trouble(column: trouble.Column) -> bool:
    """Whether something failed in a column, perhaps only at first, or was cancelled."""
    return any(cell is not None and cell.character not in CALM for cell in column)


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in text[:1_000].split(",") if word.strip()))
