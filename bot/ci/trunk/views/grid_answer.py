"""The JSON of the grid."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from bot.ci.trunk import broken_columns, suspects
from bot.ci.trunk.cells import FAILED
from bot.ci.trunk.tables import CommitRow
from bot.web.answers import Answer, fill
from bot.web.row_answers import RowAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.trunk import grid
    from bot.ci.trunk.branch_standing import Standing
    from bot.ci.trunk.cells import Cell
    from bot.ci.trunk.grid import Column
    from bot.ci.trunk.suspects import Broken

PULL = {"pr_number": "pr"}


class HudCell(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One job on one commit; `c` is its character, see docs/ci.md"""

    c: str
    n: (
        Annotated[tuple[int, int], Meta(description="shards, and jobs of this name, like this; all")] | None
    ) = None
    job: int | str | None = None
    line: str | None = None
    sig: str | None = None
    kind: Annotated[str, Meta(description="what its log says: infra, test, ...")] | None = None
    tests: Annotated[int, Meta(description="how many tests failed")] | None = None
    flake: Annotated[bool, Meta(description="whether it failed alone, between passes")] = False


class HudColumn(Struct, frozen=True, kw_only=True):
    """A job, without shard and runner"""

    name: str
    group: str
    workflow: str
    blocking: bool
    state: Literal["ok", "suspect", "broken", "unknown"]


class HudLine(
    RowAnswer,
    row=CommitRow,
    only=(
        "sha",
        "title",
        "author",
        "pr_number",
        "at",
        "folded",
        "gone",
        "verdict",
        "green_before",
        "cells",
    ),
    rename=PULL,
    frozen=True,
    kw_only=True,
):
    """A commit, and its cells by the place of their column"""

    folded: Annotated[int, Meta(description="further commits that were pushed with it")]
    gone: Annotated[bool, Meta(description="no longer on the branch")]
    verdict: Literal["green", "red", "running", "none"]
    green_before: str | None  # of a red one: the newest green commit before it, where the answer has one
    cells: dict[str, HudCell]


class HudSuspect(
    RowAnswer,
    row=CommitRow,
    only=("sha", "title", "author", "pr_number", "pushed_with"),
    rename=PULL,
    frozen=True,
    kw_only=True,
):
    """A commit that may have broken a job"""

    title: Annotated[str | None, Meta(description="null until GitHub has listed the commit")]
    pushed_with: Annotated[str | None, Meta(description="the head that it came with, null where it is one")]


class HudBroken(Struct, frozen=True, kw_only=True):
    """A broken job: its first failure in a row, its last pass before, and what came between them"""

    name: str
    first_bad: str
    last_good: str | None
    failures: int
    same: Annotated[bool, Meta(description="false where the failures are known to differ")]
    suspects: list[HudSuspect]
    more_suspects: int


class HudStanding(Struct, frozen=True, kw_only=True):
    """How the branch stands, by its newest 50 commits whichever are in the answer"""

    state: Annotated[
        Literal["green", "broken", "red", "running", "unknown"],
        Meta(description="of the blocking jobs; red: a commit failed, and no job is broken"),
    ]
    since: str | None
    at_least: Annotated[bool, Meta(description="whether it began before these commits")]
    last_good: str | None
    unfinished: Annotated[int, Meta(description="newer commits whose blocking jobs still run")]
    blocking: Annotated[list[str], Meta(description="broken jobs that merging waits for")]
    watched: Annotated[list[str], Meta(description="broken jobs that block nothing")]


class Hud(Answer, frozen=True, kw_only=True):
    """A branch, newest commit first; `next` is the `before` of the page after, null at the end"""

    branch: str
    standing: HudStanding
    columns: list[HudColumn]
    lines: list[HudLine]
    broken: Annotated[list[HudBroken], Meta(description="the first of the columns that are broken")]
    next: str | None


def answer(
    found: grid.Grid,
    wanted: Sequence[int],
    broken: Sequence[Broken],
    *,
    standing: Standing,
    following: str | None,
) -> Hud:
    """Return the JSON of a grid, with the columns that were asked for, by their places."""
    cells_of: dict[int, broken_columns.Column] = {place: found.column(place) for place in wanted}
    on_branch = found.on_branch()
    return Hud(
        branch=standing.branch,
        standing=_standing(standing),
        columns=[
            _column(found.columns[place], cells_of[place] if on_branch is found else on_branch.column(place))
            for place in wanted
        ],
        lines=_lines(
            found,
            {place: str(new) for new, place in enumerate(wanted)},
            _lone(found, cells_of),
        ),
        broken=[_broken(one) for one in broken[: suspects.BROKEN_MOST]],
        next=following,
    )


def _standing(one: Standing) -> HudStanding:
    return HudStanding(
        state=one.state,
        since=one.since["sha"] if one.since else None,
        at_least=one.at_least,
        last_good=one.last_good["sha"] if one.last_good else None,
        unfinished=one.unfinished,
        blocking=[each.name for each in one.blocking],
        watched=[each.name for each in one.watched],
    )


def _broken(one: Broken) -> HudBroken:
    return HudBroken(
        name=one.name,
        first_bad=one.first_bad["sha"],
        last_good=one.last_good["sha"] if one.last_good else None,
        failures=one.breakage.failures,
        same=one.breakage.same,
        suspects=[fill(HudSuspect, each) for each in one.suspects],
        more_suspects=one.more,
    )


def _column(one: Column, cells: broken_columns.Column) -> HudColumn:
    return HudColumn(
        name=one.name,
        group=one.group,
        workflow=one.workflow,
        blocking=one.blocking,
        state=broken_columns.state(cells).value,
    )


def _cells(found: dict[int, Cell], places: dict[int, str], lone: set[int]) -> dict[str, HudCell]:
    """Return a line's cells by the places that the answer gives their columns."""
    return {
        place: HudCell(
            c=cell.character,
            n=cell.count,
            job=cell.job,
            line=cell.line,
            sig=cell.signature,
            kind=cell.kind,
            tests=cell.tests_failed,
            flake=key in lone,
        )
        for key, place in places.items()
        if (cell := found.get(key)) is not None
    }


def _lone(found: grid.Grid, cells_of: dict[int, broken_columns.Column]) -> dict[int, set[int]]:
    """Return the columns that failed alone, between passes, by the place of the line."""
    failing = {at for line in found.lines for at, cell in line.cells.items() if cell.character in FAILED}
    lone: defaultdict[int, set[int]] = defaultdict(set)
    for place in failing & cells_of.keys():
        for at in broken_columns.flakes(cells_of[place]):
            if found.lines[at].cells[place].broken:
                lone[at].add(place)
    return lone


def _lines(found: grid.Grid, places: dict[int, str], lone: dict[int, set[int]]) -> list[HudLine]:
    made = []
    for at, (line, green) in enumerate(zip(found.lines, found.greens_before(), strict=True)):
        made.append(
            fill(
                HudLine,
                line.commit,
                gone=line.gone,
                verdict=line.verdict,
                green_before=green,
                cells=_cells(line.cells, places, lone.get(at, set())),
            )
        )
    return made
