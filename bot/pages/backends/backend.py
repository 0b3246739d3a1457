"""GET /oot/{org}/{repo}: the page of one backend.

Numbers, charts, the grid of its jobs, failing tests, its levels so far, the runs that lowered its pass rate.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from bot.core.escaping import web_url
from bot.core.json_fields import iso_time
from bot.core.text import plural
from bot.oot.allowlist import versions as allowlists
from bot.oot.publish.rows import read_demoting_pulls
from bot.oot.results import jobs
from bot.oot.results.visibility import read_private_names
from bot.oot.statistics import health
from bot.oot.statistics.health import Window
from bot.oot.statistics.stats import DAY
from bot.oot.verdict.view import job_of
from bot.pages.backends import dispatches, job_matrix, job_rows
from bot.pages.backends.interface import BACKEND, DAYS, read_names
from bot.pages.backends.job_rows import JobFilter
from bot.pages.backends.levels import read_shared
from bot.pages.backends.metrics import charts_of
from bot.pages.backends.template_filters import make_cells
from bot.pages.usage import sections as usage
from bot.web import access, addresses
from bot.web import parameters as declare
from bot.web.blocks import BackendPageSubject, Block, BlockLine, order_blocks
from bot.web.parameters import Parameter
from bot.web.view import Page, View

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.db.transaction import Transaction
    from bot.oot.results.tables import DispatchRow, JobRow
    from bot.oot.results.visibility import PrivateNames
    from bot.oot.statistics.health import Health
    from bot.oot.statistics.stats import Day
    from bot.oot.verdict.view import Job
    from bot.pages.backends.job_matrix import GridJob, Matrix, MatrixCell, MatrixRow
    from bot.pages.backends.job_rows import LoweringJob, PullTitle
    from bot.web.parameters import Query

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
LOWERING_DAYS = 7  # days
MOST_LOWERING = 20
MOST_LEVELS = 20


@dataclass(kw_only=True)
class OpenCell:
    """The contents of an open cell; empty when its commit is not shown."""

    line: MatrixRow | None = None
    cell: MatrixCell | None = None
    jobs: list[Job] = field(default_factory=list)
    earlier: list[Job] = field(default_factory=list)


@dataclass(kw_only=True)
class FailingTest:
    """A test, how often and on which commits it failed, when first and last, and the last run."""

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


async def describe_demotion(tx: Transaction, subject: BackendPageSubject) -> list[Block]:
    """Explain why a demoted backend starts no check runs."""
    lines = []
    for upstream in subject.upstreams:
        number = (await read_demoting_pulls(tx, upstream)).get(subject.repo.casefold())
        if number is not None:
            words = f"at L3 it begins no check runs: {upstream}#{number} proposes to demote it, until it is closed"
            lines.append(BlockLine(text=words, url=f"/{upstream}/pull/{number}", tone="wait"))
    return [Block(heading="Temporary demotion", lines=tuple(lines))] if lines else []


async def read_backend_page(query: Query) -> BackendOnPage:
    """Read one backend; the query selects the window, the tab and the open cell. Raises Rejected 404."""
    tx, repo, wide, hidden = query.tx, query[BACKEND], query[COLUMNS] == "all", query.hidden
    window = Window(days=query[DAYS], now=tx.now)
    backend, known = await health.read_backend(tx, hidden, repo, window)
    names = await read_names(query, [backend.repo])
    on = query[ON]
    tab, wanted, grid_jobs = await _read_tab(query, repo, window, on)
    grid = job_matrix.build_matrix(
        [names.of_row(row, backend.repo) for row in grid_jobs],
        most=COMMITS,
        fold=None if wide else job_matrix.FOLD,
    )
    latest = await jobs.latest_jobs(tx, repo, since=window.since, limit=LATEST, hidden=hidden.names)
    return BackendOnPage(
        health=backend,
        window=window,
        days=known,
        tab=tab,
        tab_chosen=query[TAB_IN_ADDRESS] or tab != query[TAB],
        wide=wide,
        fresh=addresses.read_refresh(query.request).rest,
        on="" if on is None else iso_time(on * DAY)[:10],
        grid=grid,
        titles=await _read_titles(tx, grid),
        opened=await _read_open_cell(tx, grid, query[CELL], names),
        failed=[]
        if names.hides(backend.repo)
        else await job_rows.failed_tests(tx, wanted, limit=FAILED_JOBS),
        unnamed=await job_rows.count_unnamed_failures(tx, wanted),
        latest=[names.of_row(row, backend.repo) for row in latest],
        private=names.hides(backend.repo),
        unanswered=await job_rows.unanswered_dispatches(tx, repo, since=window.since, hidden=hidden.names),
        blocks=await _read_blocks(query, backend.repo),
        form_key=query.request.get(access.FORM_KEY),
        github=web_url(query.settings.github_api_url),
    )


def show_backend(backend: BackendOnPage) -> dict[str, Any]:
    """Return what the page shows."""
    repo, tab, days = backend.health.repo, backend.tab, backend.window.days
    same = urlencode({"days": days} | ({"event": ",".join(TABS[tab][1])} if backend.tab_chosen else {}))
    return {
        "backend": backend.health,
        "days": days,
        "windows": addresses.windows(days),
        "tab": tab,
        "tab_chosen": backend.tab_chosen,
        "tabs": {name: label for name, (label, _) in TABS.items()},
        "matrix": backend.grid,
        "cells": make_cells(backend.grid),
        "wide": backend.wide,
        "on": backend.on,
        "titles": backend.titles,
        "opened": backend.opened,
        "private": backend.private,
        "failing": most_failing(backend.failed),
        "failed_jobs": len(backend.failed),
        "unnamed": backend.unnamed,
        "most_failed_jobs": FAILED_JOBS,
        "charts": charts_of(backend.days, backend.window, f"/oot/{repo}", backend.fresh),
        "latest": [(row, job_of(row)) for row in backend.latest if "refused" not in row["flags"]],
        "unanswered": backend.unanswered,
        "most_unanswered": job_rows.MOST_UNANSWERED,
        "blocks": backend.blocks,
        "form_key": backend.form_key,
        "environment": next((row["environment"] for row in backend.latest if row["environment"]), {}),
        "github": backend.github,
        "json_url": f"/api/oot/backends/{repo}?{same}",
        "csv_url": f"/api/oot/backends/{repo}/jobs.csv?{same}",
    }


def most_failing(failed: Iterable[JobRow]) -> list[FailingTest]:
    """Return the tests that failed in most runs; `failed` are newest first."""
    tests: dict[tuple[str | None, str], FailingTest] = {}
    for row in failed:
        at = row["received_at"]
        for classname, name in {
            (test.get("classname"), test["name"]) for test in row["failed_tests_json"] or ()
        }:
            test = tests.get((classname, name))
            if test is None:
                test = tests[classname, name] = FailingTest(
                    classname=classname,
                    name=name,
                    commits=set(),
                    first_at=at,
                    last_at=at,
                    last_url=row["workflow_run_url"],
                )
            test.runs += 1
            test.commits.add(row["head_sha"] or row["run_id"])
            test.first_at = at
    order = sorted(
        tests.values(), key=lambda test: (-test.runs, -test.last_at, test.classname or "", test.name)
    )
    return order[:FAILING_TESTS]


VIEW = View(
    read=read_backend_page,
    of_upstream=True,
    parameters=(BACKEND, DAYS, TAB, TAB_IN_ADDRESS, COLUMNS, ON, CELL),
    page=Page(path="/oot/{org}/{repo}", template="backend.html", values=show_backend),
)


async def describe_backend(query: Query, subject: BackendPageSubject) -> list[Block]:
    """Describe the history of its levels, and which runs lowered its pass rate in the last week."""
    return [*await _levels(query.tx, subject.repo), *await _lowering(query, subject)]


async def _read_tab(
    query: Query, repo: str, window: Window, on: int | None
) -> tuple[str, JobFilter, list[GridJob]]:
    """Return the requested tab and its jobs; by default the nightlies of a backend that reports nothing else.

    Jobs are those of a day where one was asked for, the filter is that of the window.
    """
    tabs = [query[TAB]] if query[TAB_IN_ADDRESS] or on is not None else [query[TAB], "nightly"]
    filters = {
        tab: JobFilter(backend=repo, since=window.since, events=TABS[tab][1], hidden=query.hidden.names)
        for tab in tabs
    }
    for tab, wanted in filters.items():
        shown = wanted if on is None else replace(wanted, since=on * DAY, until=(on + 1) * DAY)
        if grid_jobs := await job_rows.grid_jobs(query.tx, shown, commits=COMMITS, limit=CELLS):
            return tab, wanted, grid_jobs
    return tabs[0], filters[tabs[0]], []


async def _read_blocks(query: Query, repo: str) -> list[Block]:
    """Return the blocks below the jobs."""
    tx = query.tx
    shown = tuple(upstream for upstream in query.settings.upstream_repo if not query.hidden.has(upstream))
    subject = BackendPageSubject(repo=repo, upstreams=shown)
    first = order_blocks(
        await dispatches.describe_pings(tx, subject),
        await describe_demotion(tx, subject),
        await usage.show_backend(tx, subject),
    )
    return [*first, *await describe_backend(query, subject)]


async def _read_open_cell(tx: Transaction, grid: Matrix, key: str, names: PrivateNames) -> OpenCell | None:
    """Read the jobs of an open cell in full, with their earlier attempts."""
    opened = grid.find(key)
    if opened is None:
        return OpenCell() if key else None
    line, cell = opened
    full = await jobs.get_jobs(tx, [row["job_key"] for row in (*cell.rows, *cell.earlier)], held=False)

    def shown(part: Iterable[GridJob]) -> list[Job]:
        return [
            job_of(names.of_row(full[row["job_key"]], row["downstream_repo"]))
            for row in part
            if row["job_key"] in full
        ]

    return OpenCell(line=line, cell=cell, jobs=shown(cell.rows), earlier=shown(cell.earlier))


async def _read_titles(tx: Transaction, grid: Matrix) -> dict[tuple[str, int], PullTitle]:
    """Return title and author of the grid's pull requests, by upstream and number."""
    numbers: dict[str, set[int]] = {}
    for line in grid.lines:
        upstream, number, *_ = line.place
        if number is not None:
            numbers.setdefault(upstream, set()).add(number)
    return {
        (upstream, number): title
        for upstream, wanted in numbers.items()
        for number, title in (await job_rows.titles_of_pulls(tx, upstream, wanted)).items()
    }


async def _levels(tx: Transaction, repo: str) -> list[Block]:
    history = await allowlists.read_level_history(tx, repo)
    lines = tuple(
        BlockLine(
            text=f"{f'L{level}' if level else 'not listed'} since {datetime.fromtimestamp(since / 1000, UTC):%Y-%m-%d}"
        )
        for level, since in history[:MOST_LEVELS]
    )
    return [Block(heading="Levels so far", lines=lines, last=True)] if lines else []


async def _lowering(query: Query, subject: BackendPageSubject) -> list[Block]:
    tx = query.tx
    since = tx.now - LOWERING_DAYS * DAY
    listed = await allowlists.read_in_force(tx)
    entry = listed.find(subject.repo) if listed else None
    if entry is None:
        return []
    lowering = await job_rows.lowering_jobs(
        tx, subject.repo, since=since, upstreams=subject.upstreams, limit=MOST_LOWERING + 1
    )
    if not lowering:
        return []
    shared = await read_shared(query, entry, since=since)
    private = await read_private_names(tx, query.settings, {subject.repo})
    lines = [
        _lowering_line(private.of_row(job, subject.repo), upstreams=job["job_key"] in shared)
        for job in lowering[:MOST_LOWERING]
    ]
    if len(lowering) > MOST_LOWERING:
        lines.append(BlockLine(text=f"more than {plural(MOST_LOWERING, 'run')}: the CSV of its jobs has all"))
    return [Block(heading="What lowered its pass rate in the last 7 days", lines=tuple(lines), last=True)]


def _lowering_line(job: LoweringJob, *, upstreams: bool) -> BlockLine:
    about = f"#{job['pr_number']}" if job["pr_number"] else (job["head_sha"] or job["event_type"])[:10]
    end = (job["conclusion"] or "").replace("_", " ")
    words = f"{job['workflow_name']} / {job['job_name']} on {about}: {end}"
    if upstreams:
        words += "; upstream's own jobs fail the same tests there, so it does not count against its level"
    return BlockLine(text=words, url=job["workflow_run_url"], tone="idle" if upstreams else "bad")
