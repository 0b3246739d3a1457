"""Charts of a backend over days."""

from __future__ import annotations

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
