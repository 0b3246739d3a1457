"""GET /oot/{org}/{repo}: the page of one backend, with numbers, charts, the grid of its jobs, failing tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from bot.core.json_fields import iso_time
from bot.core.links import web_url
from bot.core.text import duration, percent
from bot.oot.pages import health, rows
from bot.oot.pages.health import Window
from bot.oot.pages.rows import JobFilter
from bot.oot.pages.template_filters import cells
from bot.oot.results.store import jobs
from bot.oot.statistics import days, job_matrix
from bot.oot.statistics.days import DAY
from bot.oot.verdict.view import job_of
from bot.web import access, blocks, parameters
from bot.web.app_keys import CONTEXT
from bot.web.blocks import BackendPageSubject
from bot.web.charts import chart
from bot.web.html import page, render

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aiohttp import web

    from bot.db.transaction import Transaction
    from bot.oot.pages.rows import PullTitle
    from bot.oot.results.tables import JobRow
    from bot.oot.statistics.days import Day
    from bot.oot.statistics.job_matrix import Cell, GridJob, Line, Matrix
    from bot.oot.statistics.stats import Tally
    from bot.oot.verdict.view import Job
    from bot.web.charts import Chart

TABS = {
    "pulls": ("Pull requests", ("pull_request",)),
    "trunk": ("Trunk", ("push",)),
    "nightly": ("Nightly", ("nightly", "periodic")),
}
COMMITS = 50
CELLS = 5_000  # jobs on these commits
LATEST = 20
FAILED_JOBS, FAILING_TESTS = 300, 15


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


@page
async def backend(request: web.Request) -> web.Response:
    """Show one backend; the query selects the window, the tab and the open cell."""
    context = request.app[CONTEXT]
    repo, days = parameters.repo(request, "org"), parameters.days(request)
    tab = parameters.choice(request, "tab", TABS)
    wide = parameters.choice(request, "columns", ("", "all")) == "all"
    fresh = parameters.of(request)
    async with context.store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        hidden.check_upstream(context.settings)
        window = Window(days=days, now=tx.now)
        one, known = await health.of_one(tx, hidden, repo, window)
        wanted = JobFilter(backend=repo, since=window.since, events=TABS[tab][1], hidden=hidden.names)
        found = await rows.grid_jobs(tx, wanted, commits=COMMITS, limit=CELLS)
        grid = job_matrix.build(found, most=COMMITS, fold=None if wide else job_matrix.FOLD)
        failed = await rows.failed_tests(tx, wanted, limit=FAILED_JOBS)
        latest = await rows.latest_jobs(tx, repo, since=window.since, limit=LATEST, hidden=hidden.names)
        silent = await rows.unanswered(tx, repo, since=window.since, hidden=hidden.names)
        opened = await _opened(tx, grid, request.query.get("cell", ""))
        titles = await _titles(tx, grid)
        added = await blocks.gather(context.features, "backend", tx, BackendPageSubject(repo=one.repo))
    same = urlencode({"days": days} | ({"event": ",".join(TABS[tab][1])} if "tab" in request.query else {}))
    return render(
        request,
        "backend.html",
        fresh=fresh,
        backend=one,
        days=days,
        windows=parameters.windows(days),
        tab=tab,
        tabs={name: label for name, (label, _) in TABS.items()},
        matrix=grid,
        cells=cells(grid),
        wide=wide,
        titles=titles,
        opened=opened,
        failing=most_failing(failed),
        failed_jobs=len(failed),
        most_failed_jobs=FAILED_JOBS,
        charts=charts_of(known, window),
        latest=[(row, job_of(row)) for row in latest if "refused" not in row["flags"]],
        unanswered=silent,
        most_unanswered=rows.MOST_UNANSWERED,
        blocks=added,
        environment=next((row["environment"] for row in latest if row["environment"]), {}),
        github=web_url(context.settings.github_api_url),
        json_url=f"/api/oot/backends/{one.repo}?" + same,
        csv_url=f"/api/oot/backends/{one.repo}/jobs.csv?" + same,
    )


def charts_of(known: Sequence[Day], window: Window) -> list[Chart]:
    """Return the charts of some days: pass rate, number of runs, duration, time in the queue."""
    tallies = days.by_day(known, first=window.first, last=window.last)
    labels = [iso_time(day * DAY)[:10] for day in range(window.first, window.last + 1)]
    return [
        chart("Pass rate", labels, [("pass rate", days.pass_rates(tallies))], show=percent, top=1.0),
        chart("Runs", labels, _volume(tallies), show=lambda value: f"{value:g}"),
        _timed("Duration", "execution", labels, tallies),
        _timed("Queue", "queue", labels, tallies),
    ]


def _volume(tallies: Sequence[Tally | None]) -> list[tuple[str, list[float | None]]]:
    known = [one if one and (one.runs or one.rated) else None for one in tallies]
    runs: list[float | None] = [float(one.runs) if one else None for one in known]
    failed: list[float | None] = [float(one.rated - one.success) if one else None for one in known]
    return [("runs", runs), ("failed, timed out or never started", failed)]


def _timed(title: str, name: str, labels: Sequence[str], tallies: Sequence[Tally | None]) -> Chart:
    pairs = days.medians(tallies, name)
    series = [("median", [middle for middle, _ in pairs]), ("p90", [high for _, high in pairs])]
    return chart(title, labels, series, seconds=True, show=lambda value: duration(value) or "0 s")


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


async def _opened(tx: Transaction, grid: Matrix, key: str) -> OpenCell | None:
    """Return what an open cell shows: its jobs in full, and their earlier attempts."""
    found = grid.find(key)
    if found is None:
        return OpenCell() if key else None
    line, cell = found
    full = await jobs.get_jobs(tx, [row["job_key"] for row in (*cell.rows, *cell.earlier)], held=False)

    def shown(part: Iterable[GridJob]) -> list[Job]:
        return [job_of(full[row["job_key"]]) for row in part if row["job_key"] in full]

    return OpenCell(line=line, cell=cell, jobs=shown(cell.rows), earlier=shown(cell.earlier))


async def _titles(tx: Transaction, grid: Matrix) -> dict[tuple[str, int], PullTitle]:
    """Return title and author of the grid's pull requests, by upstream and number."""
    numbers: dict[str, set[int]] = {}
    for line in grid.lines:
        upstream, number, _ = line.place
        if number is not None:
            numbers.setdefault(upstream, set()).add(number)
    return {
        (upstream, number): title
        for upstream, wanted in numbers.items()
        for number, title in (await rows.titles(tx, upstream, wanted)).items()
    }
