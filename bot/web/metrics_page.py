"""GET /oot/metrics and /api/oot/metrics: how did every backend do over time?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from aiohttp import web

from bot.domain import trend
from bot.domain.days import DAY
from bot.domain.reading import show_time
from bot.store import rollup
from bot.web import access, health, parameters, refresh
from bot.web.aside import aside
from bot.web.backend_page import charts_of
from bot.web.health import Window
from bot.web.html import page, render
from bot.web.keys import CONTEXT
from bot.web.past import PAST

if TYPE_CHECKING:
    from bot.domain.charts import Chart
    from bot.domain.days import Day
    from bot.web.health import Health

Row = dict[str, Any]
FEWEST, MOST = 2, 6  # backends on one page
DRAWN = 124  # of their days, all together: each is a point of four charts and a row of their tables


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One backend and its charts."""

    health: Health
    charts: list[Chart]


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    window: Window
    found: list[Health]  # those that did anything, the busiest first
    most: int  # on one page
    part: list[Health]  # of this page
    known: dict[str, list[Day]]  # days of those, by case folded name


@page
async def metrics(request: web.Request) -> web.Response:
    """Show pass rate, failures, volume, queue and execution time of some backends over time."""
    days, query, start = parameters.days(request), parameters.words(request), _start(request)
    level, fresh = parameters.level(request), refresh.of(request)
    chosen = await _read(request)
    total = len(chosen.found)
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
        most=chosen.most,
        total=total,
        drawn=[
            Drawn(health=one, charts=charts_of(chosen.known.get(one.repo.casefold(), []), chosen.window))
            for one in chosen.part
        ],
        json_url="/api/oot/metrics?"
        + urlencode({"days": days, "q": query, "level": level or "", "from": start}),
    )


@aside
async def as_json(request: web.Request) -> web.Response:
    """Answer with the same, a row for each backend and day."""
    chosen = await _read(request)
    rows = [
        row
        for one in chosen.part
        for row in _rows(one, chosen.known.get(one.repo.casefold(), []), chosen.window)
    ]
    return web.json_response(
        {"ok": True, "days": chosen.window.days, "backends": len(chosen.found), "rows": rows}
    )


async def _read(request: web.Request) -> _Chosen:
    context = request.app[CONTEXT]
    days, query, level = parameters.days(request), parameters.words(request), parameters.level(request)
    start = _start(request)
    async with context.store.read() as tx:
        hidden = await access.of_request(request, tx)
        hidden.check_upstream(context.settings)
        window = Window(days=days, now=tx.now)
        everybody = await health.of_all(tx, hidden, days, request.app[PAST])
        found = [
            one for one in everybody if one.stats.rated and one.matches(query) and level in {None, one.level}
        ]
        found.sort(key=lambda one: (-one.stats.runs, one.label.casefold()))
        most = max(FEWEST, min(MOST, DRAWN // days))
        part = found[start - 1 : start - 1 + most]
        keys = [one.repo.casefold() for one in part]
        known: dict[str, list[Day]] = {key: [] for key in keys}
        for one in await rollup.read(tx, window.first, backends=keys):
            if not hidden.has(one.upstream):
                known[one.key].append(one)
    return _Chosen(window=window, found=found, most=most, part=part, known=known)


def _start(request: web.Request) -> int:
    return parameters.whole(request, "from", default=1, most=100_000)


def _rows(one: Health, known: list[Day], window: Window) -> list[Row]:
    tallies = trend.by_day(known, first=window.first, last=window.last)
    execution, queue = trend.medians(tallies, "execution"), trend.medians(tallies, "queue")
    return [
        {
            "repo": one.repo,
            "day": show_time((window.first + at) * DAY)[:10],
            "runs": tally.runs,
            "pass_rate": tally.pass_rate,
            "failed": tally.rated - tally.success,
            "median_execution_time": execution[at][0],
            "p90_execution_time": execution[at][1],
            "median_queue_time": queue[at][0],
            "p90_queue_time": queue[at][1],
        }
        for at, tally in enumerate(tallies)
        if tally
    ]
