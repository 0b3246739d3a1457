"""Charts of a backend over days."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bot.core.json_fields import iso_time
from bot.core.text import duration, percent
from bot.oot.statistics import days
from bot.oot.statistics.days import DAY
from bot.web.charts import chart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.oot.pages.health import Window
    from bot.oot.statistics.days import Day
    from bot.oot.statistics.stats import Tally
    from bot.web.charts import Chart


def charts_of(known: Sequence[Day], window: Window, home: str, rest: str = "") -> list[Chart]:
    """Return the charts of some days: pass rate, number of runs, duration, time in the queue.

    Their points lead to the commits of the day on the backend's page, `home`; `rest` ends the query of these links.
    """
    tallies = days.by_day(known, first=window.first, last=window.last)
    labels = [iso_time(day * DAY)[:10] for day in range(window.first, window.last + 1)]
    links = [f"{home}?days={window.days}&on={day}{rest}#jobs" for day in labels]
    draw = partial(chart, labels=labels, links=links)
    return [
        draw("Pass rate", series=[("pass rate", days.pass_rates(tallies))], show=percent, top=1.0),
        draw("Runs", series=_volume(tallies), show=lambda value: f"{value:g}"),
        draw("Duration", series=_timed("execution", tallies), seconds=True, show=_words),
        draw("Queue", series=_timed("queue", tallies), seconds=True, show=_words),
    ]


def _volume(tallies: Sequence[Tally | None]) -> list[tuple[str, list[float | None]]]:
    known = [one if one and (one.runs or one.rated) else None for one in tallies]
    runs: list[float | None] = [float(one.runs) if one else None for one in known]
    failed: list[float | None] = [float(one.rated - one.success) if one else None for one in known]
    return [("runs", runs), ("failed, timed out or never started", failed)]


def _timed(name: str, tallies: Sequence[Tally | None]) -> list[tuple[str, list[float | None]]]:
    pairs = days.medians(tallies, name)
    return [("median", [middle for middle, _ in pairs]), ("p90", [high for _, high in pairs])]


def _words(seconds: float) -> str:
    return duration(seconds) or "0 s"
