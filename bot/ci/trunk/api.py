"""GET /api/ci/...: the grid of a branch as JSON, and its last good commit; and the routes of the grid."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from aiohttp import web
from msgspec import Meta, Struct

from bot.ci.trunk import grid, hud_filter, hud_page, name_patterns, numbers_page, reading, trouble
from bot.ci.trunk import last_good as last_good_commit
from bot.ci.trunk.cells import WORDS
from bot.ci.trunk.settings import TrunkSettings
from bot.core.errors import Rejected
from bot.web import access, html, parameters
from bot.web.answers import Answer, Time, send, time
from bot.web.app_keys import CONTEXT
from bot.web.render_thread import in_render_thread

if TYPE_CHECKING:
    from bot.ci.trunk.grid import Column

OWNER = r"{owner:(?!(?:oot|hud|api|admin|static)/)[^{}/]+}"  # /oot/{org}/{repo} is somebody else's page


class HudCell(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One job on one commit; `c` is its character, see docs/ci.md"""

    c: str
    n: Annotated[tuple[int, int], Meta(description="shards like this, all shards")] | None = None
    job: int | str | None = None
    line: str | None = None
    sig: str | None = None
    flake: Annotated[bool, Meta(description="whether it failed alone, between passes")] = False


class HudColumn(Struct, frozen=True, kw_only=True):
    """A job, without shard and runner"""

    name: str
    group: str
    workflow: str
    blocking: bool
    state: Literal["ok", "suspect", "broken", "unknown"]


class HudLine(Struct, frozen=True, kw_only=True):
    """A commit, and its cells by the place of their column"""

    sha: str
    title: str
    author: str | None
    pr: int | None
    at: Time
    verdict: Literal["green", "red", "running", "none"]
    cells: dict[str, HudCell]


class Hud(Answer, frozen=True, kw_only=True):
    """A branch, newest commit first; `next` is the `before` of the page after, null at the end"""

    branch: str
    columns: list[HudColumn]
    lines: list[HudLine]
    next: str | None


@in_render_thread
async def hud(request: web.Request) -> web.Response:
    """Answer with the grid of a branch."""
    context, repo, chosen = request.app[CONTEXT], parameters.repo(request), hud_filter.of(request)
    async with context.store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        name = request.match_info.get("branch", "")[: hud_page.BRANCH_MOST]
        branch = await reading.find(tx, hidden, repo, name)
        commits, more = await reading.newest(tx, branch, before=chosen.before, limit=chosen.per)
        facts = await reading.facts(tx, context.settings, branch, commits, jobs=chosen.shards)
    found = grid.build(facts, context.settings.of(TrunkSettings), shards=chosen.shards)
    return send(answer(found, chosen, branch.name, commits[-1]["sha"] if more and commits else None))


class LastGood(Answer, frozen=True, kw_only=True):
    """The newest commit on which every selected job passed"""

    sha: str
    at: Time
    columns: Annotated[int, Meta(description="how many jobs were selected")]


@in_render_thread
async def last_good(request: web.Request) -> web.Response:
    """Answer with the last good commit of a branch."""
    context, repo, given = request.app[CONTEXT], parameters.repo(request), partial(parameters.given, request)
    jobs, wanted = given("jobs") or last_good_commit.BLOCKING, given("branch")[: hud_page.BRANCH_MOST]
    backends = tuple(name.strip() for name in given("backends").split(",") if name.strip())
    if len(backends) > last_good_commit.BACKENDS_MOST:
        raise Rejected(400, "invalid_parameter", f"backends: at most {last_good_commit.BACKENDS_MOST}")
    try:
        if jobs != last_good_commit.BLOCKING:
            name_patterns.compiled(jobs)
    except ValueError as error:
        raise Rejected(400, "invalid_parameter", f"jobs: {error}") from None
    async with context.store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        branch = await reading.find(tx, hidden, repo, wanted)
        found = await last_good_commit.find(tx, context.settings, branch, jobs=jobs, backends=backends)
    commit = found.commit
    return send(LastGood(sha=commit["sha"], at=time(commit["at"]) or "", columns=found.columns))


def answer(found: grid.Grid, chosen: hud_filter.Filter, branch: str, following: str | None) -> Hud:
    """Return the JSON of a grid, with the columns that were asked for."""
    wanted = sorted(chosen.columns(found))
    cells_of = {place: found.column(place) for place in wanted}
    failing = {place for place, column in cells_of.items() if any(cell and cell.broken for cell in column)}
    return Hud(
        branch=branch,
        columns=[_column(found.columns[place], cells_of[place]) for place in wanted],
        lines=_lines(
            found,
            {place: str(new) for new, place in enumerate(wanted)},
            {place: trouble.flakes(cells_of[place]) for place in failing},
        ),
        next=following,
    )


def _column(one: Column, cells: trouble.Column) -> HudColumn:
    return HudColumn(
        name=one.name,
        group=one.group,
        workflow=one.workflow,
        blocking=one.blocking,
        state=trouble.state(cells).value,
    )


def _lines(found: grid.Grid, places: dict[int, str], flakes: dict[int, frozenset[int]]) -> list[HudLine]:
    made = []
    for at, line in enumerate(found.lines):
        commit = line.commit
        cells = line.cells
        lone = {key for key, found_at in flakes.items() if at in found_at and cells[key].broken}
        shown = {
            place: HudCell(
                c=cell.character,
                n=cell.count,
                job=cell.job,
                line=cell.line,
                sig=cell.signature,
                flake=key in lone,
            )
            for key, place in places.items()
            if (cell := cells.get(key)) is not None
        }
        made.append(
            HudLine(
                sha=commit["sha"],
                title=commit["title"],
                author=commit["author"],
                pr=commit["pr_number"],
                at=time(commit["at"]) or "",
                verdict=line.verdict,
                cells=shown,
            )
        )
    return made


def setup(app: web.Application) -> None:
    """Add the routes and templates of the grid."""
    html.add_templates(app, hud_page.TEMPLATES, values={"WORDS": WORDS})
    app.add_routes(
        [
            web.get("/hud", hud_page.first),
            web.get("/hud/{owner}/{repo}", hud_page.default),
            web.get("/hud/{owner}/{repo}/{branch:.+}", hud_page.hud),
            web.get("/api/ci/{owner}/{repo}/last-good", last_good),
            web.get("/api/ci/metrics/{owner}/{repo}", numbers_page.metrics_json),
            web.get("/api/ci/reliability/{owner}/{repo}", numbers_page.reliability_json),
            web.get("/api/ci/queue/{owner}/{repo}", numbers_page.queue_json),
            web.get(f"/{OWNER}/{{repo}}/metrics", numbers_page.metrics),
            web.get(f"/{OWNER}/{{repo}}/reliability", numbers_page.reliability),
            web.get(f"/{OWNER}/{{repo}}/queue", numbers_page.queue),
            web.get("/api/ci/hud/{owner}/{repo}/{branch:.+}", hud),
        ]
    )
