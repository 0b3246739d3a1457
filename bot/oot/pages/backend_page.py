"""GET /oot/{org}/{repo}: the page of one backend, with numbers, charts, the grid of its jobs, failing tests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from bot.core.json_fields import iso_time
from bot.core.links import web_url
from bot.oot.pages import backend_sections, health, rows
from bot.oot.pages.backend_charts import charts_of
from bot.oot.pages.backend_parameters import BACKEND, DAYS
from bot.oot.pages.health import Window
from bot.oot.pages.rows import JobFilter
from bot.oot.pages.template_filters import make_cells
from bot.oot.pages.visible_names import read_names
from bot.oot.results.store import jobs
from bot.oot.statistics import job_matrix
from bot.oot.statistics.days import DAY
from bot.oot.verdict.view import job_of
from bot.web import access, blocks, parameters
from bot.web import view_parameters as declare
from bot.web.asked import Parameter
from bot.web.subjects import BackendPageSubject
from bot.web.view import Page, View

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.db.transaction import Transaction
    from bot.oot.pages.health import Health
    from bot.oot.pages.rows import PullTitle
    from bot.oot.results.private_names import PrivateNames
    from bot.oot.results.tables import DispatchRow, JobRow
    from bot.oot.statistics.days import Day
    from bot.oot.statistics.job_matrix import Cell, GridJob, Line, Matrix
    from bot.oot.verdict.view import Job
    from bot.web.asked import Asked
    from bot.web.blocks import Block

TABS = {
    "pulls": ("Pull requests", ("pull_request",)),
    "trunk": ("Trunk", ("push",)),
    "nightly": ("Nightly", ("nightly", "periodic")),
}
COMMITS = 50
CELLS = 5_000  # jobs on these commits
LATEST = 20
FAILED_JOBS, FAILING_TESTS = 300, 15
TAB = declare.choice("tab", tuple(TABS), "which commits")
TAB_IN_ADDRESS = Parameter("tab", lambda request: "tab" in request.query, default=False)
COLUMNS = declare.choice("columns", ("", "all"), "all: none is folded")
ON = declare.day("on", "only jobs of this day (UTC)", only="page")
CELL = Parameter("cell", lambda request: request.query.get("cell", ""), "")


@dataclass(kw_only=True)
class OpenCell:
    """What an open cell shows; nothing when it is not among the commits shown."""

    line: Line | None = None
    cell: Cell | None = None
    jobs: list[Job] = field(default_factory=list)
    earlier: list[Job] = field(default_factory=list)


@dataclass(kw_only=True)
class FailingTest:
    """A test: how often it failed, on which commits, when first and last, and the last run."""

    classname: str | None
    name: str
    runs: int = 0
    commits: set[str]
    first_at: int
    last_at: int
    last_url: str | None


@dataclass(frozen=True, kw_only=True)
class BackendOnPage:
    """One backend as its page shows it."""

    health: Health
    window: Window
    days: Sequence[Day]
    tab: str
    tab_chosen: bool  # by the address, or because there are nightlies only
    wide: bool
    fresh: str  # the suffix of links to this page that keeps how it refreshes
    on: str  # the day whose jobs are shown; empty: all of the window
    grid: Matrix
    titles: dict[tuple[str, int], PullTitle]
    opened: OpenCell | None
    failed: list[JobRow]  # newest jobs with failed tests
    unnamed: tuple[int, int]  # failed tests that were only counted, and attempts of their jobs
    latest: list[JobRow]
    private: bool  # its names may not be shown
    unanswered: list[DispatchRow]
    blocks: list[Block]  # of other features
    form_key: str | None  # of the operator, where one is signed in
    github: str


async def read_backend_page(asked: Asked) -> BackendOnPage:
    """Read one backend; the query selects the window, the tab and the open cell. Raises Rejected 404."""
    tx, repo, wide, hidden = asked.tx, asked[BACKEND], asked[COLUMNS] == "all", asked.hidden
    window = Window(days=asked[DAYS], now=tx.now)
    one, known = await health.read_backend(tx, hidden, repo, window)
    names = await read_names(asked, [one.repo])
    on = asked[ON]
    tab, wanted, found = await _tab(asked, repo, window, on)
    grid = job_matrix.build(
        [names.of_row(row, one.repo) for row in found], most=COMMITS, fold=None if wide else job_matrix.FOLD
    )
    latest = await rows.latest_jobs(tx, repo, since=window.since, limit=LATEST, hidden=hidden.names)
    return BackendOnPage(
        health=one,
        window=window,
        days=known,
        tab=tab,
        tab_chosen=asked[TAB_IN_ADDRESS] or tab != asked[TAB],
        wide=wide,
        fresh=parameters.read_refresh(asked.request).rest,
        on="" if on is None else iso_time(on * DAY)[:10],
        grid=grid,
        titles=await _titles(tx, grid),
        opened=await _opened(tx, grid, asked[CELL], names),
        failed=[] if names.hides(one.repo) else await rows.failed_tests(tx, wanted, limit=FAILED_JOBS),
        unnamed=await rows.count_unnamed_failures(tx, wanted),
        latest=[names.of_row(row, one.repo) for row in latest],
        private=names.hides(one.repo),
        unanswered=await rows.unanswered_dispatches(tx, repo, since=window.since, hidden=hidden.names),
        blocks=await _blocks(asked, one.repo),
        form_key=asked.request.get(access.FORM_KEY),
        github=web_url(asked.settings.github_api_url),
    )


async def _tab(
    asked: Asked, repo: str, window: Window, on: int | None
) -> tuple[str, JobFilter, list[GridJob]]:
    """Return the tab asked for and its jobs; where none is, nightlies if the backend reports nothing else.

    Jobs are those of a day where one was asked for, the filter is that of the window.
    """
    tabs = [asked[TAB]] if asked[TAB_IN_ADDRESS] or on is not None else [asked[TAB], "nightly"]
    filters = {
        tab: JobFilter(backend=repo, since=window.since, events=TABS[tab][1], hidden=asked.hidden.names)
        for tab in tabs
    }
    for tab, wanted in filters.items():
        shown = wanted if on is None else replace(wanted, since=on * DAY, until=(on + 1) * DAY)
        if found := await rows.grid_jobs(asked.tx, shown, commits=COMMITS, limit=CELLS):
            return tab, wanted, found
    return tabs[0], filters[tabs[0]], []


async def _blocks(asked: Asked, repo: str) -> list[Block]:
    """Return what other features and our own rows say below the jobs."""
    shown = tuple(one for one in asked.settings.upstream_repo if not asked.hidden.has(one))
    subject = BackendPageSubject(repo=repo, upstreams=shown)
    others = await blocks.gather(asked.context.features, "backend", asked.tx, subject)
    return [*others, *await backend_sections.show_backend(asked, subject)]


def show(found: BackendOnPage) -> dict[str, Any]:
    """Return what the page shows."""
    repo, tab, days = found.health.repo, found.tab, found.window.days
    same = urlencode({"days": days} | ({"event": ",".join(TABS[tab][1])} if found.tab_chosen else {}))
    return {
        "backend": found.health,
        "days": days,
        "windows": parameters.windows(days),
        "tab": tab,
        "tab_chosen": found.tab_chosen,
        "tabs": {name: label for name, (label, _) in TABS.items()},
        "matrix": found.grid,
        "cells": make_cells(found.grid),
        "wide": found.wide,
        "on": found.on,
        "titles": found.titles,
        "opened": found.opened,
        "private": found.private,
        "failing": most_failing(found.failed),
        "failed_jobs": len(found.failed),
        "unnamed": found.unnamed,
        "most_failed_jobs": FAILED_JOBS,
        "charts": charts_of(found.days, found.window, f"/oot/{repo}", found.fresh),
        "latest": [(row, job_of(row)) for row in found.latest if "refused" not in row["flags"]],
        "unanswered": found.unanswered,
        "most_unanswered": rows.MOST_UNANSWERED,
        "blocks": found.blocks,
        "form_key": found.form_key,
        "environment": next((row["environment"] for row in found.latest if row["environment"]), {}),
        "github": found.github,
        "json_url": f"/api/oot/backends/{repo}?{same}",
        "csv_url": f"/api/oot/backends/{repo}/jobs.csv?{same}",
    }


def most_failing(failed: Iterable[JobRow]) -> list[FailingTest]:
    """Return the tests that failed in most runs; `failed` are newest first."""
    found: dict[tuple[str | None, str], FailingTest] = {}
    for row in failed:
        at = row["received_at"]
        for classname, name in {
            (test.get("classname"), test["name"]) for test in row["failed_tests_json"] or ()
        }:
            one = found.get((classname, name))
            if one is None:
                one = found[classname, name] = FailingTest(
                    classname=classname,
                    name=name,
                    commits=set(),
                    first_at=at,
                    last_at=at,
                    last_url=row["workflow_run_url"],
                )
            one.runs += 1
            one.commits.add(row["head_sha"] or row["run_id"])
            one.first_at = at
    order = sorted(found.values(), key=lambda one: (-one.runs, -one.last_at, one.classname or "", one.name))
    return order[:FAILING_TESTS]


async def _opened(tx: Transaction, grid: Matrix, key: str, names: PrivateNames) -> OpenCell | None:
    """Return what an open cell shows: its jobs in full, and their earlier attempts."""
    found = grid.find(key)
    if found is None:
        return OpenCell() if key else None
    line, cell = found
    full = await jobs.get_jobs(tx, [row["job_key"] for row in (*cell.rows, *cell.earlier)], held=False)

    def shown(part: Iterable[GridJob]) -> list[Job]:
        return [
            job_of(names.of_row(full[row["job_key"]], row["downstream_repo"]))
            for row in part
            if row["job_key"] in full
        ]

    return OpenCell(line=line, cell=cell, jobs=shown(cell.rows), earlier=shown(cell.earlier))


async def _titles(tx: Transaction, grid: Matrix) -> dict[tuple[str, int], PullTitle]:
    """Return title and author of the grid's pull requests, by upstream and number."""
    numbers: dict[str, set[int]] = {}
    for line in grid.lines:
        upstream, number, *_ = line.place
        if number is not None:
            numbers.setdefault(upstream, set()).add(number)
    return {
        (upstream, number): title
        for upstream, wanted in numbers.items()
        for number, title in (await rows.titles_of_pulls(tx, upstream, wanted)).items()
    }


VIEW = View(
    read=read_backend_page,
    of_upstream=True,
    parameters=(BACKEND, DAYS, TAB, TAB_IN_ADDRESS, COLUMNS, ON, CELL),
    page=Page(path="/oot/{org}/{repo}", template="backend.html", values=show),
)
