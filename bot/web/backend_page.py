"""GET /oot/{org}/{repo}: how does one backend do? Numbers, charts, the grid of its jobs, what fails most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from bot.domain import matrix, trend, verdict
from bot.domain.charts import chart
from bot.domain.days import DAY
from bot.domain.failing import most_failing
from bot.domain.readiness import percent
from bot.domain.reading import show_time
from bot.domain.urls import web_url
from bot.domain.words import duration
from bot.store import backend_reads, jobs, reads
from bot.store.backend_reads import Asked
from bot.web import access, health, parameters, refresh
from bot.web.backend_api import MOST_UNANSWERED
from bot.web.grid import cells
from bot.web.health import Window
from bot.web.html import page, render
from bot.web.keys import CONTEXT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from bot.domain.charts import Chart
    from bot.domain.days import Day
    from bot.domain.matrix import Matrix
    from bot.domain.tally import Tally
    from bot.store import Transaction

Row = dict[str, Any]
TABS = {
    "pulls": ("Pull requests", ("pull_request",)),
    "trunk": ("Trunk", ("push",)),
    "nightly": ("Nightly", ("nightly", "periodic")),
}
COMMITS = 50
CELLS = 5_000  # jobs of these commits
LATEST = 20
FAILED_JOBS, FAILING_TESTS = 300, 15


@page
async def backend(request: web.Request) -> web.Response:
    """Show one backend; the address says which window, which tab and which cell is open."""
    context = request.app[CONTEXT]
    repo, days = parameters.repo(request, "org"), parameters.days(request)
    tab = parameters.choice(request, "tab", TABS)
    wide = parameters.choice(request, "columns", ("", "all")) == "all"
    fresh = refresh.of(request)
    async with context.store.read() as tx:
        hidden = await access.of_request(request, tx)
        hidden.check_upstream(context.settings)
        window = Window(days=days, now=tx.now)
        one, known = await health.of_one(tx, hidden, repo, window)
        asked = Asked(backend=repo, since=window.since, events=TABS[tab][1], hidden=hidden.names)
        rows = await backend_reads.grid(tx, asked, commits=COMMITS, limit=CELLS)
        grid = matrix.build(rows, most=COMMITS, fold=None if wide else matrix.FOLD)
        failed = await backend_reads.failed_tests(tx, asked, limit=FAILED_JOBS)
        latest = await reads.latest_jobs(tx, repo, since=window.since, limit=LATEST, hidden=hidden.names)
        silent = await backend_reads.unanswered(
            tx, repo, since=window.since, hidden=hidden.names, limit=MOST_UNANSWERED
        )
        opened = await _opened(tx, grid, request.query.get("cell", ""))
        titles = await _titles(tx, grid)
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
        failing=most_failing(failed, limit=FAILING_TESTS),
        failed_jobs=len(failed),
        most_failed_jobs=FAILED_JOBS,
        charts=charts_of(known, window),
        latest=[(row, verdict.job(row)) for row in latest if "refused" not in row["flags"]],
        unanswered=silent,
        most_unanswered=MOST_UNANSWERED,
        environment=next((row["environment"] for row in latest if row["environment"]), {}),
        github=web_url(context.settings.github_api_url),
        json_url=f"/api/oot/backends/{one.repo}?" + same,
        csv_url=f"/api/oot/backends/{one.repo}/jobs.csv?" + same,
    )


def charts_of(known: Sequence[Day], window: Window) -> list[Chart]:
    """Return the charts of some days: pass rate, how many, how long, how long queued."""
    tallies = trend.by_day(known, first=window.first, last=window.last)
    labels = [show_time(day * DAY)[:10] for day in range(window.first, window.last + 1)]
    return [
        chart("Pass rate", labels, [("pass rate", trend.pass_rates(tallies))], show=percent, top=1.0),
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
    pairs = trend.medians(tallies, name)
    series = [("median", [middle for middle, _ in pairs]), ("p90", [high for _, high in pairs])]
    return chart(title, labels, series, seconds=True, show=lambda value: duration(value) or "0 s")


async def _opened(tx: Transaction, grid: Matrix, key: str) -> Row | None:
    """Return what an open cell shows: its jobs in full, and their earlier attempts."""
    found = grid.find(key)
    if found is None:
        return {"lost": True} if key else None
    line, cell = found
    full = await jobs.get(tx, [row["job_key"] for row in (*cell.rows, *cell.earlier)], held=False)
    return {
        "lost": False,
        "line": line,
        "cell": cell,
        "jobs": [verdict.job(full[row["job_key"]]) for row in cell.rows if row["job_key"] in full],
        "earlier": [verdict.job(full[row["job_key"]]) for row in cell.earlier if row["job_key"] in full],
    }


async def _titles(tx: Transaction, grid: Matrix) -> dict[tuple[str, int], Row]:
    """Return title and author of each pull request of the grid, by upstream and number."""
    numbers: dict[str, set[int]] = {}
    for line in grid.lines:
        upstream, number, _ = line.place
        if number is not None:
            numbers.setdefault(upstream, set()).add(number)
    return {
        (upstream, number): row
        for upstream, wanted in numbers.items()
        for number, row in (await backend_reads.titles(tx, upstream, wanted)).items()
    }
