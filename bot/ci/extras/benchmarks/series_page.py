"""GET /{owner}/{repo}/benchmarks/{series} and its JSON: a series over time, beside the same on other devices."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from bot.ci.extras import shown_days, shown_repositories
from bot.ci.extras.benchmarks import directions, series_rows
from bot.ci.extras.benchmarks.directions import BenchmarkSettings
from bot.ci.extras.benchmarks.series_rows import SHOWN
from bot.ci.extras.benchmarks.tables import PointRow, SeriesName
from bot.ci.extras.source_rows import DAY
from bot.web import operations as op
from bot.web import parameters
from bot.web import view_parameters as declare
from bot.web.answers import Answer, fill, matching
from bot.web.charts import chart
from bot.web.refusals import NOT_FOUND, UNKNOWN_REPOSITORY, Refused
from bot.web.row_answers import RowAnswer
from bot.web.view import Json, Page, View
from bot.web.view_parameters import REPO, REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bot.ci.extras.benchmarks.tables import NamedTrend, SeriesRow, SeriesSubject
    from bot.web.asked import Asked
    from bot.web.charts import Chart

BESIDE, CURVES, LISTED = 12, 6, 100  # series read, lines of the chart, points of the table
DIGITS = rf"[0-9a-f]{{{SHOWN}}}"
NO_SERIES = Refused(404, "not_found", "no series of that digest was measured here")
DAYS = declare.days()
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

    repo: str
    window: int
    first: int
    last: int
    series: SeriesRow
    trend: NamedTrend | None
    points: list[PointRow]
    lines: Mapping[str, list[PointRow]]  # by name: upstream's and backends', on any device
    better: str | None
    words: str


async def read_series(asked: Asked) -> Found:
    """Read a series; raises Rejected 404."""
    tx, window = asked.tx, asked[DAYS]
    own = await shown_repositories.owners(asked)
    last = tx.now // DAY
    first = last - window + 1
    series = await series_rows.series_by_digest(tx, asked[SERIES])
    points = await series_rows.points_of(tx, own, [series["id"]], first=0, trusted=False) if series else []
    if series is None or not points:
        raise NO_SERIES.because(f"no series {asked[SERIES]} was measured in {asked[REPO]}")
    these: SeriesSubject = {
        "benchmark": series["benchmark"],
        "model": series["model"],
        "metric": series["metric"],
        "device": series["device"],
    }
    trends = await series_rows.trends(tx, own, these, since=0, limit=BESIDE)
    trend = next((one for one in trends if one["id"] == series["id"]), None)
    chosen = asked.settings.of(BenchmarkSettings).ci_benchmark_directions
    step = trend and trend["step_change"]
    return Found(
        repo=asked[REPO],
        window=window,
        first=first,
        last=last,
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
    found: dict[str, list[PointRow]] = {}
    for point in await series_rows.points_of(asked.tx, labels, names, first=first):
        one = names[point["series_id"]]
        parts = (labels[point["repository_id"]], one["device"], one["arch"], one["backend"])
        name = " ".join(part for part in dict.fromkeys(parts) if part)
        found.setdefault(name or series["model"], []).append(point)
    return found


def show(found: Found) -> dict[str, Any]:
    """Return what the page shows."""
    return {
        "repo": found.repo,
        "found": found,
        "series": found.series,
        "trend": found.trend,
        "windows": parameters.windows(found.window),
        "charts": [_chart(found)] if found.lines else [],
        "listed": found.points[:LISTED],
        "more": max(len(found.points) - LISTED, 0),
    }


def _chart(found: Found) -> Chart:
    labels, window = shown_days.labels(found.first, found.last), range(found.first, found.last + 1)
    lines = [(name, _by_day(points, window)) for name, points in list(found.lines.items())[:CURVES]]
    return chart(f"{found.series['metric']}, medians of a day", labels, lines, show=shown_days.number)


def _by_day(points: Iterable[PointRow], window: range) -> list[float | None]:
    by_day: defaultdict[int, list[float]] = defaultdict(list)
    for point in points:
        if point["median"] is not None:
            by_day[point["day"]].append(point["median"])
    return [median(by_day[day]) if day in by_day else None for day in window]


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
            "repo": found.repo,
            "series": found.series["digest"].hex()[:SHOWN],
            "days": found.window,
        },
    ),
)
