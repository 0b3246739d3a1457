"""GET /hud/{owner}/{repo}/{branch} and its JSON: a branch commit by commit, with a column for every job."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

from msgspec import Meta, Struct

from bot.core.escaping import web_url
from bot.jobs import branch_history, branch_reads, branch_standing, branches, daily_sums, grid, rows
from bot.jobs.cells import FAILED
from bot.jobs.settings import TrunkSettings
from bot.jobs.tables import CommitRow
from bot.pages.culprits.sections import mark_grid
from bot.pages.grid import grid_view, opened_cell
from bot.web import openapi as op
from bot.web import parameters as declare
from bot.web.answers import Answer, RowAnswer, fill_struct
from bot.web.blocks import GridNotes, GridSubject
from bot.web.openapi import NOT_FOUND, UNKNOWN_COMMIT, UNKNOWN_REPOSITORY
from bot.web.parameters import REPO
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.jobs.branch_reads import Branch
    from bot.jobs.branch_standing import Standing
    from bot.jobs.cells import Cell
    from bot.jobs.grid import Column
    from bot.pages.grid.grid_view import GridFilter
    from bot.pages.grid.opened_cell import BrokenColumn
    from bot.web.parameters import Query

PULL = {"pr_number": "pr"}
RUNNING = 30  # seconds until a page on which something runs is reloaded
SUSPECTS_MOST = 30  # of a broken job; its JSON has more
BRANCH_MOST = 255  # characters
BRANCH = declare.in_path(
    "branch",
    str,
    "name of the branch; it may contain slashes",
    parse=lambda name: name[:BRANCH_MOST],
    default="",
)


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


@dataclass(frozen=True, kw_only=True)
class BesideGrid:
    """What only the page shows."""

    # seconds until the result of a commit was complete
    took: Mapping[str, float] = field(default_factory=dict)
    opened: opened_cell.OpenedCell | None = None
    deleted: int | None = None
    known: Sequence[str] = ()  # other branches, where this one has no commits
    notes: GridNotes = field(default_factory=GridNotes)  # what other features say of its columns and commits


@dataclass(frozen=True, kw_only=True)
class GridOnPage:
    """Commits of a branch with their jobs."""

    branch: Branch
    chosen: GridFilter
    grid: grid.Grid
    wanted: list[int]  # places of the columns asked for
    broken: Sequence[BrokenColumn]
    standing: Standing  # of its newest commits, whichever are shown
    following: str | None  # the commit that the next page begins after
    github: str
    beside: BesideGrid


def hud_answer(
    shown_grid: grid.Grid,
    wanted: Sequence[int],
    broken: Sequence[BrokenColumn],
    *,
    standing: Standing,
    following: str | None,
) -> Hud:
    """Return the JSON of a grid, with the requested columns, given by their places."""
    cells_of: dict[int, branch_history.ColumnCells] = {place: shown_grid.column(place) for place in wanted}
    on_branch = shown_grid.on_branch()
    return Hud(
        branch=standing.branch,
        standing=_standing(standing),
        columns=[
            _column(
                shown_grid.columns[place],
                cells_of[place] if on_branch is shown_grid else on_branch.column(place),
            )
            for place in wanted
        ],
        lines=_lines(
            shown_grid,
            {place: str(new) for new, place in enumerate(wanted)},
            _lone(shown_grid, cells_of),
        ),
        broken=[_broken(column) for column in broken[: opened_cell.BROKEN_MOST]],
        next=following,
    )


async def read_grid(query: Query) -> GridOnPage:
    """Read the newest commits of a branch."""
    tx, settings, chosen = query.tx, query.settings, grid_view.grid_filter_of(query)
    branch = await branch_reads.find_branch(tx, query.hidden, query[REPO], query[BRANCH])
    commits, more = await branch_reads.newest_commits(
        tx, branch, before=chosen.before, limit=chosen.per, until=chosen.until
    )
    facts = await branch_reads.read_facts(tx, settings, branch, commits, jobs=chosen.shards)
    shown_grid = grid.build_grid(facts, settings.of(TrunkSettings), shards=chosen.shards)
    wanted = sorted(chosen.columns(shown_grid))
    backends = await branch_standing.blocking_backends(tx)
    broken = await opened_cell.find_broken(tx, branch, shown_grid, wanted, backends=backends)
    if chosen.shows_newest:
        standing = branch_standing.judge_branch(shown_grid, branch.name, backends)
    else:
        standing = await branch_standing.read_standing(tx, settings, branch)
    broken = await opened_cell.find_broken(tx, branch, shown_grid, wanted, backends=backends)
    return GridOnPage(
        branch=branch,
        chosen=chosen,
        grid=shown_grid,
        wanted=wanted,
        broken=broken,
        standing=standing,
        following=commits[-1]["sha"] if more and commits else None,
        github=web_url(settings.github_api_url),
        beside=await _read_beside(query, branch, shown_grid, chosen, broken)
        if query.for_page
        else BesideGrid(),
    )


def show_grid(page: GridOnPage) -> dict[str, Any]:
    """Return what the page shows."""
    branch, beside, home = page.branch, page.beside, grid_address(page.branch)
    return {
        "repo": branch.repository["full_name"],
        "branch": branch.name,
        "deleted": beside.deleted,
        "known": [(name, _address_of(branch, name)) for name in beside.known],
        "home": home,
        "chosen": page.chosen,
        "groups": list(dict.fromkeys(column.group for column in page.grid.columns)),
        "view": grid_view.make_grid_view(
            page.grid, page.chosen, home, {column.place for column in page.broken}
        ),
        "broken": page.broken,
        "standing": page.standing,
        "took": beside.took,
        "notes": beside.notes,
        "most_broken": opened_cell.BROKEN_MOST,
        "most_suspects": SUSPECTS_MOST,
        "columns": len(page.grid.columns),
        "opened": beside.opened,
        "following": page.following,
        "github": page.github,
    }


def answer_grid(page: GridOnPage) -> Hud:
    """Return the JSON of the grid."""
    return hud_answer(page.grid, page.wanted, page.broken, standing=page.standing, following=page.following)


def _grid_refresh(page: GridOnPage) -> int:
    running = any(line.verdict == "running" for line in page.grid.lines)
    return RUNNING if running and page.chosen.shows_newest else 0


def _commit_link(page: GridOnPage) -> dict[str, object]:
    branch, query = page.branch, page.chosen.chosen(open="", groups="")
    return {"repo": branch.repository["full_name"], "branch": branch.name, **query}


def grid_address(branch: Branch) -> str:
    """Return the address of a branch's page."""
    return _address_of(branch, branch.name)


GRID_VIEW = View(
    read=read_grid,
    parameters=(REPO, BRANCH, *grid_view.PARAMETERS),
    page=Page(
        path="/hud/{owner}/{repo}/{branch:.+}", template="hud.html", values=show_grid, refresh=_grid_refresh
    ),
    json=Json(
        path="/api/ci/hud/{owner}/{repo}/{branch:.+}",
        answer=answer_grid,
        content=Hud,
        name="hud",
        summary="A branch, commit by job",
        topic=op.CI,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY, UNKNOWN_COMMIT),
        link=_commit_link,
    ),
)


def _standing(standing: Standing) -> HudStanding:
    return HudStanding(
        state=standing.state,
        since=standing.since["sha"] if standing.since else None,
        at_least=standing.at_least,
        last_good=standing.last_good["sha"] if standing.last_good else None,
        unfinished=standing.unfinished,
        blocking=[each.name for each in standing.blocking],
        watched=[each.name for each in standing.watched],
    )


def _broken(broken: BrokenColumn) -> HudBroken:
    return HudBroken(
        name=broken.name,
        first_bad=broken.first_bad["sha"],
        last_good=broken.last_good["sha"] if broken.last_good else None,
        failures=broken.breakage.failures,
        same=broken.breakage.same,
        suspects=[fill_struct(HudSuspect, each) for each in broken.suspects],
        more_suspects=broken.more,
    )


def _column(column: Column, cells: branch_history.ColumnCells) -> HudColumn:
    return HudColumn(
        name=column.name,
        group=column.group,
        workflow=column.workflow,
        blocking=column.blocking,
        state=branch_history.column_state(cells).value,
    )


def _cells(line_cells: dict[int, Cell], places: dict[int, str], lone: set[int]) -> dict[str, HudCell]:
    """Return a line's cells by the places of their columns in the answer."""
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
        if (cell := line_cells.get(key)) is not None
    }


def _lone(shown_grid: grid.Grid, cells_of: dict[int, branch_history.ColumnCells]) -> dict[int, set[int]]:
    """Return, by the place of the line, the columns that failed there alone, between two passes."""
    failing = {at for line in shown_grid.lines for at, cell in line.cells.items() if cell.character in FAILED}
    lone: defaultdict[int, set[int]] = defaultdict(set)
    for place in failing & cells_of.keys():
        for at in branch_history.flakes(cells_of[place]):
            if shown_grid.lines[at].cells[place].broken:
                lone[at].add(place)
    return lone


def _lines(shown_grid: grid.Grid, places: dict[int, str], lone: dict[int, set[int]]) -> list[HudLine]:
    made = []
    for at, (line, green) in enumerate(zip(shown_grid.lines, shown_grid.greens_before(), strict=True)):
        made.append(
            fill_struct(
                HudLine,
                line.commit,
                gone=line.gone,
                verdict=line.verdict,
                green_before=green,
                cells=_cells(line.cells, places, lone.get(at, set())),
            )
        )
    return made


async def _read_beside(
    query: Query, branch: Branch, shown_grid: grid.Grid, chosen: GridFilter, broken: Sequence[BrokenColumn]
) -> BesideGrid:
    tx, identifier = query.tx, branch.repository["repository_id"]
    commits = [line.commit for line in shown_grid.lines]
    about = GridSubject(
        repo=branch.repository["full_name"],
        repository_id=identifier,
        branch=branch.name,
        shas=tuple(row["sha"] for row in commits),
        broken=tuple(column.name for column in broken),
        settings=query.settings,
    )
    return BesideGrid(
        took=await daily_sums.read_signal_seconds(tx, identifier, branch.name, commits),
        opened=await opened_cell.read_opened(tx, query.settings, branch, shown_grid, chosen),
        deleted=await branches.deleted_at(tx, identifier, branch.name),
        known=[] if commits else await rows.branches(tx, identifier),
        notes=await mark_grid(tx, about),
    )


def _address_of(branch: Branch, name: str) -> str:
    return f"/hud/{branch.repository['full_name']}/{quote(name)}"
