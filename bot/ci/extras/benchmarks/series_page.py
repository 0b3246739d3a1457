"""GET /{owner}/{repo}/benchmarks/{series} and its JSON: a series over time, beside the same on other devices."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from bot.ci.extras import shown_repositories
from bot.ci.extras.benchmarks import directions, series_rows
from bot.ci.extras.benchmarks.directions import BenchmarkSettings
from bot.ci.extras.benchmarks.series_rows import SHOWN
from bot.ci.extras.benchmarks.tables import PointRow, SeriesName
from bot.ci.extras.shown_window import DAYS, read_window
from bot.web import operations as op
from bot.web import view_parameters as declare
from bot.web.answers import Answer, fill, matching
from bot.web.refusals import NOT_FOUND, UNKNOWN_REPOSITORY, Refused
from bot.web.row_answers import RowAnswer
from bot.web.view import Json, Page, View
from bot.web.view_parameters import REPO, REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bot.ci.extras.benchmarks.tables import SeriesRow, TrendRow
    from bot.ci.extras.shown_window import Window
    from bot.web.asked import Asked
    from bot.web.charts import Chart

BESIDE, CURVES, LISTED = 12, 6, 100  # series read, lines of the chart, points of the table
DIGITS = rf"[0-9a-f]{{{SHOWN}}}"
NO_SERIES = Refused(404, "not_found", "no series of that digest was measured here")
SERIES = declare.in_path(
    "series", Annotated[str, matching(DIGITS)], "the series, as other answers name it", parse=str, default=""
)


class SeriesDescription(RowAnswer, row=SeriesName, frozen=True, kw_only=True):
    """What is measured, and on what."""


class BenchmarkPoint(
    RowAnswer,
    row=PointRow,
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
class Found:
    """A series with its points, beside others of the same model."""

    window: Window
    series: SeriesRow
    trend: TrendRow | None
    points: list[PointRow]
    lines: Mapping[str, list[PointRow]]  # by name: upstream's and backends', on any device
    better: str | None
    words: str


async def read_series(asked: Asked) -> Found:
    """Read a series; raises Rejected 404."""
    window = await read_window(asked)
    own, first = window.owners, window.first
    series = await series_rows.series_by_digest(asked.tx, asked[SERIES])
    known = [series["id"]] if series else []
    points = await series_rows.points_of(asked.tx, own, known, first=0, trusted=False)
    if series is None or not points:
        raise NO_SERIES.because(f"no series {asked[SERIES]} was measured in {asked[REPO]}")
    trend = await series_rows.trend_of(asked.tx, own, series["id"])
    chosen = asked.settings.of(BenchmarkSettings).ci_benchmark_directions
    step = trend and trend["step_change"]
    return Found(
        window=window,
        series=series,
        trend=trend,
        points=[one for one in points if one["day"] >= first],
        lines=await _lines(asked, own, series, first) if asked.for_page else {},
        better=directions.direction(series["metric"], chosen),
        words="" if step is None else directions.words(series["metric"], step, chosen),
    )


async def _lines(asked: Asked, own: set[int], series: SeriesRow, first: int) -> dict[str, list[PointRow]]:
    """Return the trusted points of the same model and metric, on each device of each repository that may be shown."""
    called = await shown_repositories.labels(asked)
    labels = dict.fromkeys(own, "")
    for upstream in [one for one in asked.settings.upstream_repo if one.casefold() != asked[REPO].casefold()]:
        labels |= dict.fromkeys(await shown_repositories.visible(asked, upstream), "upstream")
    for repo, ids in await shown_repositories.backends(asked, asked.settings.upstream_repo[0]):
        if not ids & own:
            labels |= dict.fromkeys(ids, called.get(repo.casefold(), repo))
    beside = await series_rows.beside(asked.tx, series, limit=BESIDE)
    names = {one["id"]: one for one in beside}
    found: dict[str, list[PointRow]] = {_name(series, ""): []}  # its own line is the first
    for point in await series_rows.points_of(asked.tx, labels, names, first=first):
        name = _name(names[point["series_id"]], labels[point["repository_id"]])
        found.setdefault(name, []).append(point)
    return found


def _name(series: SeriesRow, label: str) -> str:
    parts = (label, series["device"], series["arch"], series["backend"])
    return " ".join(part for part in dict.fromkeys(parts) if part) or series["model"] or series["metric"]


def show(found: Found) -> dict[str, Any]:
    """Return what the page shows."""
    return found.window.page | {
        "found": found,
        "series": found.series,
        "trend": found.trend,
        "charts": [_chart(found)] if found.lines else [],
        "listed": found.points[:LISTED],
        "more": max(len(found.points) - LISTED, 0),
    }


def _chart(found: Found) -> Chart:
    """Return the chart of a series and those beside it; a click leads to the commit that the series had on that day."""
    lines = [(name, _by_day(points)) for name, points in list(found.lines.items())[:CURVES]]
    title = f"{found.series['metric']}, medians of a day"
    measured = {one["day"]: one["head_sha"] for one in reversed(found.points) if one["trusted"]}
    links = {day: f"/{found.window.repo}/commit/{sha}" for day, sha in measured.items()}
    return found.window.chart(title, lines, links=links)


def _by_day(points: Iterable[PointRow]) -> dict[int, float]:
    by_day: defaultdict[int, list[float]] = defaultdict(list)
    for point in points:
        if point["median"] is not None:
            by_day[point["day"]].append(point["median"])
    return {day: median(values) for day, values in by_day.items()}


def answer(found: Found) -> BenchmarkSeries:
    """Return the JSON of a series."""
    return BenchmarkSeries(
        names=fill(SeriesDescription, found.series),
        better=found.better,
        points=[fill(BenchmarkPoint, one) for one in found.points],
    )


VIEW = View(
    read=read_series,
    parameters=(REPO, SERIES, DAYS),
    page=Page(
        path=f"{REPOSITORY}/benchmarks/{{series:{DIGITS}}}", template="benchmark_series.html", values=show
    ),
    json=Json(
        path=f"/api/ci/benchmarks/{{owner}}/{{repo}}/{{series:{DIGITS}}}",
        answer=answer,
        content=BenchmarkSeries,
        name="benchmarkSeries",
        summary="A series of a benchmark over time",
        topic=op.CI,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY, NO_SERIES),
        link=lambda found: {
            "repo": found.window.repo,
            "series": found.series["digest"].hex()[:SHOWN],
            "days": found.window.size,
        },
    ),
)
