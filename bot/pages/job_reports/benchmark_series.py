"""GET /{owner}/{repo}/benchmarks/{series} and its JSON: a series over time, beside the same on other devices."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from bot.job_reports import benchmark_judgement, benchmark_rows
from bot.job_reports.benchmark_rows import DIGEST_DIGITS
from bot.job_reports.feature import JobReportSettings
from bot.job_reports.tables import SeriesName, SeriesPointRow
from bot.pages.job_reports import day_window
from bot.pages.job_reports.day_window import DAYS, read_window
from bot.web import openapi as op
from bot.web import parameters as declare
from bot.web.answers import Answer, RowAnswer, fill_struct, matching
from bot.web.openapi import NOT_FOUND, UNKNOWN_REPOSITORY, DeclaredRefusal
from bot.web.parameters import REPO, REPOSITORY
from bot.web.view import Json, Page, View

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bot.job_reports.tables import SeriesRow, SeriesTrendRow
    from bot.pages.job_reports.day_window import DayWindow
    from bot.web.charts import Chart
    from bot.web.parameters import Query

SERIES_BESIDE, CURVES, POINTS_LISTED = 12, 6, 100  # series read, lines of the chart, points of the table
DIGITS = rf"[0-9a-f]{{{DIGEST_DIGITS}}}"
NO_SERIES = DeclaredRefusal(404, "not_found", "no series of that digest was measured here")
SERIES = declare.in_path(
    "series", Annotated[str, matching(DIGITS)], "the series, as other answers name it", parse=str, default=""
)


class SeriesDescription(RowAnswer, row=SeriesName, frozen=True, kw_only=True):
    """What is measured, and on what."""


class BenchmarkPoint(
    RowAnswer,
    row=SeriesPointRow,
    without=("series_id", "repository_id", "object_id", "day"),
    frozen=True,
    kw_only=True,
):
    """What one job measured."""


class BenchmarkSeries(Answer, frozen=True, kw_only=True):
    """A series over time"""

    names: SeriesDescription
    better: Annotated[str | None, Meta(description="lower or higher; null: the metric's name does not tell")]
    points: Annotated[list[BenchmarkPoint], Meta(description="newest first; those not trusted, too")]


@dataclass(frozen=True, kw_only=True)
class SeriesOverTime:
    """A series with its points, beside others of the same model."""

    window: DayWindow
    series: SeriesRow
    trend: SeriesTrendRow | None
    points: list[SeriesPointRow]
    lines: Mapping[str, list[SeriesPointRow]]  # by name: upstream's and backends', on any device
    better: str | None
    words: str


async def read_series(query: Query) -> SeriesOverTime:
    """Read a series; raises Rejected 404."""
    window = await read_window(query)
    own, first = window.owners, window.first
    series = await benchmark_rows.series_by_digest(query.tx, query[SERIES])
    known = [series["id"]] if series else []
    points = await benchmark_rows.points_of_series(query.tx, own, known, first=0, trusted=False)
    if series is None or not points:
        raise NO_SERIES.because(f"no series {query[SERIES]} was measured in {query[REPO]}")
    trend = await benchmark_rows.read_trend(query.tx, own, series["id"])
    chosen = query.settings.of(JobReportSettings).ci_benchmark_directions
    step = trend and trend["step_change"]
    return SeriesOverTime(
        window=window,
        series=series,
        trend=trend,
        points=[point for point in points if point["day"] >= first],
        lines=await _lines(query, own, series, first) if query.for_page else {},
        better=benchmark_judgement.better_direction(series["metric"], chosen),
        words="" if step is None else benchmark_judgement.change_in_words(series["metric"], step, chosen),
    )


def page_values(history: SeriesOverTime) -> dict[str, Any]:
    """Return what the page shows."""
    return history.window.page | {
        "history": history,
        "series": history.series,
        "trend": history.trend,
        "charts": [_chart(history)] if history.lines else [],
        "listed": history.points[:POINTS_LISTED],
        "more": max(len(history.points) - POINTS_LISTED, 0),
    }


def json_answer(history: SeriesOverTime) -> BenchmarkSeries:
    """Return the JSON of a series."""
    return BenchmarkSeries(
        names=fill_struct(SeriesDescription, history.series),
        better=history.better,
        points=[fill_struct(BenchmarkPoint, point) for point in history.points],
    )


VIEW = View(
    read=read_series,
    parameters=(REPO, SERIES, DAYS),
    page=Page(
        path=f"{REPOSITORY}/benchmarks/{{series:{DIGITS}}}",
        template="benchmark_series.html",
        values=page_values,
    ),
    json=Json(
        path=f"/api/ci/benchmarks/{{owner}}/{{repo}}/{{series:{DIGITS}}}",
        answer=json_answer,
        content=BenchmarkSeries,
        name="benchmarkSeries",
        summary="A series of a benchmark over time",
        topic=op.CI,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY, NO_SERIES),
        link=lambda history: {
            "repo": history.window.repo,
            "series": history.series["digest"].hex()[:DIGEST_DIGITS],
            "days": history.window.size,
        },
    ),
)


async def _lines(
    query: Query, own: set[int], series: SeriesRow, first: int
) -> dict[str, list[SeriesPointRow]]:
    """Return the trusted points of the same model and metric, on each device of each visible repository."""
    called = await day_window.backend_labels(query)
    labels = dict.fromkeys(own, "")
    for upstream in [
        repo for repo in query.settings.upstream_repo if repo.casefold() != query[REPO].casefold()
    ]:
        labels |= dict.fromkeys(await day_window.visible_ids(query, upstream), "upstream")
    for repo, ids in await day_window.visible_backends(query, query.settings.upstream_repo[0]):
        if not ids & own:
            labels |= dict.fromkeys(ids, called.get(repo.casefold(), repo))
    beside = await benchmark_rows.series_beside(query.tx, series, limit=SERIES_BESIDE)
    names = {row["id"]: row for row in beside}
    lines: dict[str, list[SeriesPointRow]] = {_name(series, ""): []}  # its own line is the first
    for point in await benchmark_rows.points_of_series(query.tx, labels, names, first=first):
        name = _name(names[point["series_id"]], labels[point["repository_id"]])
        lines.setdefault(name, []).append(point)
    return lines


def _name(series: SeriesRow, label: str) -> str:
    parts = (label, series["device"], series["arch"], series["backend"])
    return " ".join(part for part in dict.fromkeys(parts) if part) or series["model"] or series["metric"]


def _chart(history: SeriesOverTime) -> Chart:
    """Return the chart of a series and those beside it; a click leads to the commit that the series had on that day."""
    lines = [(name, _by_day(points)) for name, points in list(history.lines.items())[:CURVES]]
    title = f"{history.series['metric']}, medians of a day"
    measured = {point["day"]: point["head_sha"] for point in reversed(history.points) if point["trusted"]}
    links = {day: f"/{history.window.repo}/commit/{sha}" for day, sha in measured.items()}
    return history.window.chart(title, lines, links=links)


def _by_day(points: Iterable[SeriesPointRow]) -> dict[int, float]:
    by_day: defaultdict[int, list[float]] = defaultdict(list)
    for point in points:
        if point["median"] is not None:
            by_day[point["day"]].append(point["median"])
    return {day: median(values) for day, values in by_day.items()}
