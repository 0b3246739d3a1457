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


async def read_series(asked: Query) -> SeriesOverTime:
    """Read a series; raises Rejected 404."""
    window = await read_window(asked)
    own, first = window.owners, window.first
    series = await benchmark_rows.series_by_digest(asked.tx, asked[SERIES])
    known = [series["id"]] if series else []
    points = await benchmark_rows.points_of_series(asked.tx, own, known, first=0, trusted=False)
    if series is None or not points:
        raise NO_SERIES.because(f"no series {asked[SERIES]} was measured in {asked[REPO]}")
    trend = await benchmark_rows.read_trend(asked.tx, own, series["id"])
    chosen = asked.settings.of(JobReportSettings).ci_benchmark_directions
    step = trend and trend["step_change"]
    return SeriesOverTime(
        window=window,
        series=series,
        trend=trend,
        points=[one for one in points if one["day"] >= first],
        lines=await _lines(asked, own, series, first) if asked.for_page else {},
        better=benchmark_judgement.better_direction(series["metric"], chosen),
        words="" if step is None else benchmark_judgement.change_in_words(series["metric"], step, chosen),
    )


async def _lines(
    asked: Query, own: set[int], series: SeriesRow, first: int
) -> dict[str, list[SeriesPointRow]]:
    """Return the trusted points of the same model and metric, on each device of each repository that may be shown."""
    called = await day_window.backend_labels(asked)
    labels = dict.fromkeys(own, "")
    for upstream in [one for one in asked.settings.upstream_repo if one.casefold() != asked[REPO].casefold()]:
        labels |= dict.fromkeys(await day_window.visible_ids(asked, upstream), "upstream")
    for repo, ids in await day_window.visible_backends(asked, asked.settings.upstream_repo[0]):
        if not ids & own:
            labels |= dict.fromkeys(ids, called.get(repo.casefold(), repo))
    beside = await benchmark_rows.series_beside(asked.tx, series, limit=SERIES_BESIDE)
    names = {one["id"]: one for one in beside}
    found: dict[str, list[SeriesPointRow]] = {_name(series, ""): []}  # its own line is the first
    for point in await benchmark_rows.points_of_series(asked.tx, labels, names, first=first):
        name = _name(names[point["series_id"]], labels[point["repository_id"]])
        found.setdefault(name, []).append(point)
    return found


def _name(series: SeriesRow, label: str) -> str:
    parts = (label, series["device"], series["arch"], series["backend"])
    return " ".join(part for part in dict.fromkeys(parts) if part) or series["model"] or series["metric"]


def page_values(found: SeriesOverTime) -> dict[str, Any]:
    """Return what the page shows."""
    return found.window.page | {
        "found": found,
        "series": found.series,
        "trend": found.trend,
        "charts": [_chart(found)] if found.lines else [],
        "listed": found.points[:POINTS_LISTED],
        "more": max(len(found.points) - POINTS_LISTED, 0),
    }


def _chart(found: SeriesOverTime) -> Chart:
    """Return the chart of a series and those beside it; a click leads to the commit that the series had on that day."""
    lines = [(name, _by_day(points)) for name, points in list(found.lines.items())[:CURVES]]
    title = f"{found.series['metric']}, medians of a day"
    measured = {one["day"]: one["head_sha"] for one in reversed(found.points) if one["trusted"]}
    links = {day: f"/{found.window.repo}/commit/{sha}" for day, sha in measured.items()}
    return found.window.chart(title, lines, links=links)


def _by_day(points: Iterable[SeriesPointRow]) -> dict[int, float]:
    by_day: defaultdict[int, list[float]] = defaultdict(list)
    for point in points:
        if point["median"] is not None:
            by_day[point["day"]].append(point["median"])
    return {day: median(values) for day, values in by_day.items()}


def json_answer(found: SeriesOverTime) -> BenchmarkSeries:
    """Return the JSON of a series."""
    return BenchmarkSeries(
        names=fill_struct(SeriesDescription, found.series),
        better=found.better,
        points=[fill_struct(BenchmarkPoint, one) for one in found.points],
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
        link=lambda found: {
            "repo": found.window.repo,
            "series": found.series["digest"].hex()[:DIGEST_DIGITS],
            "days": found.window.size,
        },
    ),
)
