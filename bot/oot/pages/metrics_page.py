"""GET /oot/metrics and /api/oot/metrics: every backend, day by day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from bot.core.json_fields import iso_time
from bot.oot.pages import health
from bot.oot.pages.answers import BackendDay, MetricsAnswer
from bot.oot.pages.backend_page import charts_of
from bot.oot.pages.health import Window
from bot.oot.statistics import days
from bot.oot.statistics.day_sums_cache import DAY_SUMS
from bot.oot.statistics.days import DAY
from bot.oot.statistics.store import rollup
from bot.web import access, parameters
from bot.web.answers import send
from bot.web.app_keys import CONTEXT
from bot.web.html import page, render
from bot.web.render_thread import in_render_thread

if TYPE_CHECKING:
    from aiohttp import web

    from bot.oot.pages.health import Health
    from bot.oot.statistics.days import Day
    from bot.web.charts import Chart

FEWEST, MOST = 2, 6  # backends on one page
MOST_DAYS = 124  # of these backends together: each is a point in four charts and a row of their tables


@dataclass(frozen=True, kw_only=True)
class BackendCharts:
    """One backend and its charts."""

    health: Health
    charts: list[Chart]


@dataclass(frozen=True, kw_only=True)
class _Selection:
    """The backends that the request selects, and those on this page."""

    window: Window
    found: list[Health]  # those with results, the busiest first
    most: int  # on one page
    part: list[Health]  # on this page
    days: dict[str, list[Day]]  # of those, by case folded name


@page
async def metrics(request: web.Request) -> web.Response:
    """Show pass rate, failures, volume, queue and execution time of some backends over time."""
    days, query, start = parameters.days(request), parameters.words(request), _start(request)
    level, fresh = parameters.level(request), parameters.of(request)
    selection = await _read(request)
    total = len(selection.found)
    return render(
        request,
        "metrics.html",
        fresh=fresh,
        days=days,
        windows=parameters.windows(days),
        query=query,
        level=level,
        rest=("&" + urlencode({"q": query, "level": level or ""}) if query or level else "") + fresh.rest,
        start=start,
        most=selection.most,
        total=total,
        drawn=[
            BackendCharts(
                health=one, charts=charts_of(selection.days.get(one.repo.casefold(), []), selection.window)
            )
            for one in selection.part
        ],
        json_url="/api/oot/metrics?"
        + parameters.query({"days": days, "q": query, "level": level or "", "from": start}),
    )


@in_render_thread
async def as_json(request: web.Request) -> web.Response:
    """Answer with the same numbers, a row for each backend and day."""
    selection = await _read(request)
    rows = [
        row
        for one in selection.part
        for row in _rows(one, selection.days.get(one.repo.casefold(), []), selection.window)
    ]
    return send(MetricsAnswer(days=selection.window.days, backends=len(selection.found), rows=rows))


async def _read(request: web.Request) -> _Selection:
    context = request.app[CONTEXT]
    days, query, level = parameters.days(request), parameters.words(request), parameters.level(request)
    start = _start(request)
    async with context.store.read() as tx:
        hidden = await access.hidden_from(request, tx)
        hidden.check_upstream(context.settings)
        window = Window(days=days, now=tx.now)
        backends = await health.of_all(tx, hidden, days, request.app[DAY_SUMS])
        found = [
            one for one in backends if one.stats.rated and one.matches(query) and level in {None, one.level}
        ]
        found.sort(key=lambda one: (-one.stats.runs, one.label.casefold()))
        most = max(FEWEST, min(MOST, MOST_DAYS // days))
        part = found[start - 1 : start - 1 + most]
        keys = [one.repo.casefold() for one in part]
        by_backend: dict[str, list[Day]] = {key: [] for key in keys}
        for one in await rollup.read_days(tx, window.first, backends=keys):
            if not hidden.has(one.upstream_key):
                by_backend[one.backend_key].append(one)
    return _Selection(window=window, found=found, most=most, part=part, days=by_backend)


def _start(request: web.Request) -> int:
    return parameters.whole(request, "from", default=1, most=100_000)


def _rows(one: Health, known: list[Day], window: Window) -> list[BackendDay]:
    tallies = days.by_day(known, first=window.first, last=window.last)
    execution, queue = days.medians(tallies, "execution"), days.medians(tallies, "queue")
    return [
        BackendDay(
            repo=one.repo,
            day=iso_time((window.first + at) * DAY)[:10],
            runs=tally.runs,
            pass_rate=tally.pass_rate,
            failed=tally.rated - tally.success,
            median_execution_time=execution[at][0],
            p90_execution_time=execution[at][1],
            median_queue_time=queue[at][0],
            p90_queue_time=queue[at][1],
        )
        for at, tally in enumerate(tallies)
        if tally
    ]
