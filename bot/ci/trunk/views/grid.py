"""GET /hud/{owner}/{repo}/{branch} and its JSON: a branch commit by commit, with a column for every job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from bot.ci.trunk import branch_standing, grid, reading, suspects
from bot.ci.trunk.settings import TrunkSettings
from bot.ci.trunk.store import branches, day_rows, rows
from bot.ci.trunk.views import grid_answer, hud_filter, hud_view, opened_cell
from bot.ci.trunk.views.grid_answer import Hud
from bot.core.links import web_url
from bot.web import blocks
from bot.web import operations as op
from bot.web import view_parameters as declare
from bot.web.blocks import GridNotes
from bot.web.refusals import NOT_FOUND, UNKNOWN_COMMIT, UNKNOWN_REPOSITORY
from bot.web.subjects import GridSubject
from bot.web.view import Json, Page, View
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.ci.trunk.branch_standing import Standing
    from bot.ci.trunk.reading import Branch
    from bot.ci.trunk.suspects import Broken
    from bot.ci.trunk.views.hud_filter import Filter
    from bot.web.asked import Asked

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


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What only the page shows."""

    took: Mapping[str, float] = field(
        default_factory=dict
    )  # seconds until the result of a commit was complete
    opened: opened_cell.Opened | None = None
    deleted: int | None = None
    known: Sequence[str] = ()  # other branches, where this one has no commits
    notes: GridNotes = field(default_factory=GridNotes)  # what other features say of its columns and commits


@dataclass(frozen=True, kw_only=True)
class Found:
    """Commits of a branch with their jobs."""

    branch: Branch
    chosen: Filter
    grid: grid.Grid
    wanted: list[int]  # places of the columns asked for
    broken: Sequence[Broken]
    standing: Standing  # of its newest commits, whichever are shown
    following: str | None  # the commit that the next page begins after
    github: str
    beside: Beside


async def read_grid(asked: Asked) -> Found:
    """Read the newest commits of a branch."""
    tx, settings, chosen = asked.tx, asked.settings, hud_filter.chosen_by(asked)
    branch = await reading.find_branch(tx, asked.hidden, asked[REPO], asked[BRANCH])
    commits, more = await reading.newest_commits(
        tx, branch, before=chosen.before, limit=chosen.per, until=chosen.until
    )
    facts = await reading.read_facts(tx, settings, branch, commits, jobs=chosen.shards)
    found = grid.build_grid(facts, settings.of(TrunkSettings), shards=chosen.shards)
    wanted = sorted(chosen.columns(found))
    backends = await branch_standing.blocking_backends(tx)
    broken = await suspects.find_broken(tx, branch, found, wanted, backends=backends)
    if chosen.shows_newest:
        standing = branch_standing.judge_branch(found, branch.name, backends)
    else:
        standing = await branch_standing.read_standing(tx, settings, branch)
    broken = await suspects.find_broken(tx, branch, found, wanted, backends=backends)
    return Found(
        branch=branch,
        chosen=chosen,
        grid=found,
        wanted=wanted,
        broken=broken,
        standing=standing,
        following=commits[-1]["sha"] if more and commits else None,
        github=web_url(settings.github_api_url),
        beside=await _read_beside(asked, branch, found, chosen, broken) if asked.for_page else Beside(),
    )


async def _read_beside(
    asked: Asked, branch: Branch, found: grid.Grid, chosen: Filter, broken: Sequence[Broken]
) -> Beside:
    tx, identifier = asked.tx, branch.repository["repository_id"]
    commits = [line.commit for line in found.lines]
    about = GridSubject(
        repo=branch.repository["full_name"],
        repository_id=identifier,
        branch=branch.name,
        shas=tuple(row["sha"] for row in commits),
        broken=tuple(one.name for one in broken),
        settings=asked.settings,
    )
    return Beside(
        took=await day_rows.signal_seconds(tx, identifier, branch.name, commits),
        opened=await opened_cell.read_opened(tx, asked.context, branch, found, chosen),
        deleted=await branches.deleted_at(tx, identifier, branch.name),
        known=[] if commits else await rows.branches(tx, identifier),
        notes=await blocks.grid_notes(asked.context.features, tx, about),
    )


def show(found: Found) -> dict[str, Any]:
    """Return what the page shows."""
    branch, beside, home = found.branch, found.beside, address(found.branch)
    return {
        "repo": branch.repository["full_name"],
        "branch": branch.name,
        "deleted": beside.deleted,
        "known": [(name, _address(branch, name)) for name in beside.known],
        "home": home,
        "chosen": found.chosen,
        "groups": list(dict.fromkeys(column.group for column in found.grid.columns)),
        "view": hud_view.make_view(found.grid, found.chosen, home, {one.place for one in found.broken}),
        "broken": found.broken,
        "standing": found.standing,
        "took": beside.took,
        "notes": beside.notes,
        "most_broken": suspects.BROKEN_MOST,
        "most_suspects": SUSPECTS_MOST,
        "columns": len(found.grid.columns),
        "opened": beside.opened,
        "following": found.following,
        "github": found.github,
    }


def answer(found: Found) -> Hud:
    """Return the JSON of the grid."""
    return grid_answer.answer(
        found.grid, found.wanted, found.broken, standing=found.standing, following=found.following
    )


def _refresh(found: Found) -> int:
    running = any(line.verdict == "running" for line in found.grid.lines)
    return RUNNING if running and found.chosen.shows_newest else 0


def _link(found: Found) -> dict[str, object]:
    branch, query = found.branch, found.chosen.chosen(open="", groups="")
    return {"repo": branch.repository["full_name"], "branch": branch.name, **query}


def address(branch: Branch) -> str:
    """Return the address of a branch's page."""
    return _address(branch, branch.name)


def _address(branch: Branch, name: str) -> str:
    return f"/hud/{branch.repository['full_name']}/{quote(name)}"


VIEW = View(
    read=read_grid,
    parameters=(REPO, BRANCH, *hud_filter.PARAMETERS),
    page=Page(path="/hud/{owner}/{repo}/{branch:.+}", template="hud.html", values=show, refresh=_refresh),
    json=Json(
        path="/api/ci/hud/{owner}/{repo}/{branch:.+}",
        answer=answer,
        content=Hud,
        name="hud",
        summary="A branch, commit by job",
        topic=op.CI,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY, UNKNOWN_COMMIT),
        link=_link,
    ),
)
