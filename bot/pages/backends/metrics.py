"""GET /oot/metrics and its JSON: some backends, day by day; and the charts that the page of a backend shares."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from msgspec import Struct

from bot.core.json_fields import iso_time
from bot.core.text import duration, percent
from bot.oot.statistics import daily_sums, health, stats
from bot.oot.statistics.daily_sums import DAY_SUMS
from bot.oot.statistics.health import Window
from bot.oot.statistics.stats import DAY
from bot.pages.backends.interface import DAYS, LEVEL, NOTHING_TO_SHOW, ONCALL, RESULTS, WORDS
from bot.web import addresses
from bot.web import openapi as op
from bot.web import parameters as declare
from bot.web.answers import Answer
from bot.web.charts import chart
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.oot.statistics.health import Health
    from bot.oot.statistics.stats import Day, Tally
    from bot.web.charts import Chart
    from bot.web.parameters import Query

FEWEST, MOST = 2, 6  # backends on one page
MOST_DAYS = 124  # of these backends together: each is a point in four charts and a row of their tables
START = declare.whole("from", 100_000, "the first backend, counted from 1, the busiest", default=1)


class BackendDay(Struct, frozen=True):
    """One backend on one day."""

    repo: str
    day: str
    runs: int
    pass_rate: float | None
    failed: int
    median_execution_time: float | None
    p90_execution_time: float | None
    median_queue_time: float | None
    p90_queue_time: float | None


class MetricsAnswer(Answer, frozen=True, kw_only=True):
    """Some backends, a row for each day"""

    days: int
    backends: int
    rows: list[BackendDay]


@dataclass(frozen=True, kw_only=True)
class BackendCharts:
    """One backend and its charts."""

    health: Health
    charts: list[Chart]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The backends that the request selects, and those on this page."""

    window: Window
    words: str
    level: int | None
    oncall: str
    start: int
    backends: list[Health]  # those with results, the busiest first
    most: int  # on one page
    part: list[Health]  # on this page
    days: dict[str, list[Day]]  # of those, by case folded name

    def days_of(self, backend: Health) -> list[Day]:
        """Return the days of a backend on this page."""
        return self.days.get(backend.repo.casefold(), [])


def charts_of(known: Sequence[Day], window: Window, home: str, rest: str = "") -> list[Chart]:
    """Return the charts of some days: pass rate, number of runs, duration, time in the queue.

    Their points lead to the commits of the day on the backend's page, `home`; `rest` ends the query of these links.
    """
    tallies = stats.tallies_by_day(known, first=window.first, last=window.last)
    labels = [iso_time(day * DAY)[:10] for day in range(window.first, window.last + 1)]
    links = [f"{home}?days={window.days}&on={day}{rest}#jobs" for day in labels]
    draw = partial(chart, labels=labels, links=links)
    return [
        draw("Pass rate", series=[("pass rate", stats.pass_rates(tallies))], show=percent, top=1.0),
        draw("Runs", series=_volume(tallies), show=lambda value: f"{value:g}"),
        draw("Duration", series=_timed("execution", tallies), seconds=True, show=_duration_words),
        draw("Queue", series=_timed("queue", tallies), seconds=True, show=_duration_words),
    ]


async def read_selection(query: Query) -> Selection:
    """Read the backends of one page and their days."""
    tx, hidden, start, level = query.tx, query.hidden, query[START], query[LEVEL]
    window = Window(days=query[DAYS], now=tx.now)
    backends = await health.read_backends(tx, hidden, window.days, query.request.app[DAY_SUMS])
    selected = [
        backend
        for backend in backends
        if backend.stats.rated
        and backend.matches(query[WORDS])
        and level in {None, backend.level}
        and backend.has_oncall(query[ONCALL])
    ]
    selected.sort(key=lambda backend: (-backend.stats.runs, backend.label.casefold()))
    most = max(FEWEST, min(MOST, MOST_DAYS // window.days))
    part = selected[start - 1 : start - 1 + most]
    by_backend: dict[str, list[Day]] = {backend.repo.casefold(): [] for backend in part}
    for day in await daily_sums.read_days(tx, window.first, backends=list(by_backend)):
        if not hidden.has(day.upstream_key):
            by_backend[day.backend_key].append(day)
    return Selection(
        window=window,
        words=query[WORDS],
        level=level,
        oncall=query[ONCALL],
        start=start,
        backends=selected,
        most=most,
        part=part,
        days=by_backend,
    )


def show_metrics(selection: Selection) -> dict[str, Any]:
    """Return what the page shows: pass rate, failures, volume, queue and execution time over time."""
    given = {"q": selection.words, "level": selection.level or "", "oncall": selection.oncall}
    chosen = {name: value for name, value in given.items() if value}
    return {
        "days": selection.window.days,
        "windows": addresses.windows(selection.window.days),
        "query": selection.words,
        "level": selection.level,
        "oncall": selection.oncall,
        "chosen": "&" + urlencode(chosen) if chosen else "",
        "start": selection.start,
        "most": selection.most,
        "total": len(selection.backends),
        "drawn": [
            BackendCharts(
                health=backend,
                charts=charts_of(selection.days_of(backend), selection.window, f"/oot/{backend.repo}"),
            )
            for backend in selection.part
        ],
    }


def answer_metrics(selection: Selection) -> MetricsAnswer:
    """Return the same numbers as JSON, a row for each backend and day."""
    rows = [
        row
        for backend in selection.part
        for row in _backend_days(backend, selection.days_of(backend), selection.window)
    ]
    return MetricsAnswer(days=selection.window.days, backends=len(selection.backends), rows=rows)


def _json_query(selection: Selection) -> dict[str, object]:
    return {
        "days": selection.window.days,
        "q": selection.words,
        "level": selection.level or "",
        "oncall": selection.oncall,
        "from": selection.start,
    }


VIEW = View(
    read=read_selection,
    of_upstream=True,
    parameters=(DAYS, LEVEL, WORDS, ONCALL, START),
    page=Page(path="/oot/metrics", template="metrics.html", values=show_metrics),
    json=Json(
        path="/api/oot/metrics",
        answer=answer_metrics,
        content=op.Content(MetricsAnswer, f"{FEWEST} to {MOST} backends, a row for each day"),
        name="backendMetrics",
        summary="Backends day by day",
        topic=RESULTS,
        refusals=(NOTHING_TO_SHOW,),
        link=_json_query,
    ),
)


def _volume(tallies: Sequence[Tally | None]) -> list[tuple[str, list[float | None]]]:
    known = [tally if tally and (tally.runs or tally.rated) else None for tally in tallies]
    runs: list[float | None] = [float(tally.runs) if tally else None for tally in known]
    failed: list[float | None] = [float(tally.rated - tally.success) if tally else None for tally in known]
    return [("runs", runs), ("failed, timed out or never started", failed)]


def _timed(name: str, tallies: Sequence[Tally | None]) -> list[tuple[str, list[float | None]]]:
    pairs = stats.median_times(tallies, name)
    return [("median", [middle for middle, _ in pairs]), ("p90", [high for _, high in pairs])]


def _duration_words(seconds: float) -> str:
    return duration(seconds) or "0 s"


def _backend_days(backend: Health, known: list[Day], window: Window) -> list[BackendDay]:
    tallies = stats.tallies_by_day(known, first=window.first, last=window.last)
    execution, queue = stats.median_times(tallies, "execution"), stats.median_times(tallies, "queue")
    return [
        BackendDay(
            repo=backend.repo,
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
