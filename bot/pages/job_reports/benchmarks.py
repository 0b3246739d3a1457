"""GET /{owner}/{repo}/benchmarks and /api/ci/benchmarks/{owner}/{repo}: models by devices, regressions first."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import geometric_mean, median
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import urlencode

from msgspec import Meta

from bot.job_reports import benchmark_judgement, benchmark_rows
from bot.job_reports.benchmark_rows import DIGEST_DIGITS
from bot.job_reports.feature import JobReportSettings
from bot.job_reports.tables import SeriesName, SeriesTrend
from bot.pages.job_reports import day_window
from bot.pages.job_reports.day_window import read_window, repository_view
from bot.web import addresses
from bot.web import parameters as declare
from bot.web.answers import Answer, RowAnswer, fill_struct, matching
from bot.web.parameters import REPO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.db.transaction import Transaction
    from bot.job_reports.feature import Directions
    from bot.job_reports.tables import NamedSeriesTrend, SeriesRow, SeriesSubject
    from bot.pages.job_reports.day_window import DayWindow
    from bot.web.parameters import Query

COLUMNS_SHOWN = 12  # shown
Cells = list[list["NamedSeriesTrend"]]  # of a row: the series in each column
DIFFERENCES_LISTED = 200
SHA = Annotated[str, matching(addresses.SHA)]
BASE = declare.parsed(
    "base", SHA, "a commit to compare with, with `head`", parse=addresses.commit, default=""
)
HEAD = declare.parsed("head", SHA, "a commit, or its beginning", parse=addresses.commit, default="")
MODELS_SHOWN, REGRESSIONS_SHOWN = 100, 30  # shown
BENCHMARK = declare.text("benchmark", "one benchmark")
MODEL = declare.text("model", "one model")
METRIC = declare.text("metric", "one metric")
DEVICE = declare.text("device", "one device")


class ShownRepository(NamedTuple):
    """A repository whose series are shown."""

    repo: str
    label: str  # of a backend; empty: the repository of the page


class DeviceColumn(NamedTuple):
    """A device of a repository."""

    repo: str
    label: str
    device: str


class ModelRow(NamedTuple):
    """A row: a model in one variant."""

    name: str
    about: str  # compiler, mode and type of numbers


@dataclass(frozen=True, kw_only=True)
class DeviceTable:
    """How a metric stands on each device."""

    columns: list[DeviceColumn]
    rows: Mapping[ModelRow, Cells]  # those with a regression first, as the series come

    @property
    def geomeans(self) -> list[float | None]:
        """The geometric mean of each column."""
        return [_geomean([cells[at] for cells in self.rows.values()]) for at in range(len(self.columns))]


class ComparedSeries(RowAnswer, row=SeriesName, frozen=True, kw_only=True):
    """A series on two commits."""

    series: Annotated[str, Meta(description="as in its page's address")]
    base: float
    head: float
    change: Annotated[float, Meta(description="share of the base")]
    worse: Annotated[
        bool | None, Meta(description="null: it is no significant change, or the name does not tell")
    ]


@dataclass(frozen=True, kw_only=True)
class SeriesDifference:
    """A series that was measured on both commits."""

    series: SeriesRow
    base: float
    head: float
    words: str
    worse: bool | None  # None: no change worth a word, or the metric's name does not tell

    @property
    def change(self) -> float:
        """The change, as a share of the base."""
        return (self.head - self.base) / abs(self.base)


class BenchmarkStanding(RowAnswer, row=SeriesTrend, frozen=True, kw_only=True):
    """The newest trusted point beside those before."""

    usual: Annotated[float | None, Meta(description="median of the ten points before")]
    change: Annotated[float | None, Meta(description="share of that")]
    step_change: Annotated[float | None, Meta(description="of the newest change of level that still holds")]
    worse: Annotated[bool, Meta(description="whether that change is a regression")]


class BenchmarkTrend(RowAnswer, row=SeriesName, frozen=True, kw_only=True):
    """How a series stands in a repository, by its newest trusted point."""

    series: Annotated[str, Meta(description="as in its page's address")]
    repo: str
    standing: BenchmarkStanding
    better: Annotated[str | None, Meta(description="lower or higher; null: the metric's name does not tell")]


class Benchmarks(Answer, frozen=True, kw_only=True):
    """How benchmarks of a repository and of its backends stand"""

    series: Annotated[list[BenchmarkTrend], Meta(description="regressions first; at most 5,000")]
    compared: Annotated[list[ComparedSeries], Meta(description="with base and head: the worst first")]


@dataclass(frozen=True, kw_only=True)
class BenchmarkOverview:
    """How the series of a repository and its backends stand."""

    window: DayWindow
    subject: SeriesSubject
    measured: list[tuple[str, str, int, int]]
    trends: list[NamedSeriesTrend]
    repositories: Mapping[int, ShownRepository]
    directions: Directions
    compared: ComparedCommits | None


def arrange_devices(
    trends: Sequence[NamedSeriesTrend], repositories: Mapping[int, ShownRepository], first: str
) -> DeviceTable:
    """Arrange some series as a table; the devices of the repository `first` come first."""
    seen = {DeviceColumn(*repositories[trend["repository_id"]], _device(trend)) for trend in trends}
    columns = sorted(
        seen, key=lambda column: (column.repo.casefold() != first.casefold(), column.label, column.device)
    )
    columns = columns[:COLUMNS_SHOWN]
    places = {(column.repo, column.device): at for at, column in enumerate(columns)}
    rows: defaultdict[ModelRow, Cells] = defaultdict(lambda: [[] for _ in columns])
    for trend in trends:
        at = places.get((repositories[trend["repository_id"]].repo, _device(trend)))
        if at is not None:
            about = _joined(trend["backend"], trend["mode"], trend["dtype"])
            rows[ModelRow(trend["model"], about)][at].append(trend)
    return DeviceTable(columns=columns, rows=rows)


def has_geomeans(metric: str) -> bool:
    """Whether a mean over models makes sense for a metric: it does for speedups."""
    return fnmatchcase(metric.casefold(), benchmark_judgement.SPEEDUP)


@dataclass(frozen=True, kw_only=True)
class ComparedCommits:
    """Two commits, and what differs between them: what is worse first, then the largest changes."""

    base: str
    head: str
    differences: list[SeriesDifference]

    def answers(self) -> list[ComparedSeries]:
        """Return the differences as JSON has them."""
        return [
            fill_struct(
                ComparedSeries,
                difference.series,
                series=difference.series["digest"].hex()[:DIGEST_DIGITS],
                base=difference.base,
                head=difference.head,
                change=difference.change,
                worse=difference.worse,
            )
            for difference in self.differences
        ]


async def compare_commits(query: Query, owners: set[int], chosen: Directions) -> ComparedCommits | None:
    """Compare the commits that the address names; None if it does not name both."""
    if not query[BASE] or not query[HEAD]:
        return None
    before, after = [await _values_on_commit(query.tx, owners, query[sha]) for sha in (BASE, HEAD)]
    shared = before.keys() & after.keys()
    series = await benchmark_rows.series_by_id(query.tx, shared)
    differences = [_difference(series[key], before[key], after[key], chosen) for key in shared if before[key]]
    differences.sort(
        key=lambda pair: (pair.worse is not True, -abs(pair.change), pair.series["model"], pair.series["id"])
    )
    return ComparedCommits(base=query[BASE], head=query[HEAD], differences=differences[:DIFFERENCES_LISTED])


async def read_benchmarks(query: Query) -> BenchmarkOverview:
    """Read how series stand."""
    window = await read_window(query)
    repositories = await _repositories(query, window.owners)
    measured = await benchmark_rows.read_measured(query.tx, repositories, since=window.since)
    wanted: SeriesSubject = {
        "benchmark": query[BENCHMARK], "model": query[MODEL], "metric": query[METRIC], "device": query[DEVICE],
    }  # fmt: skip
    if query.for_page and measured and not wanted["metric"]:  # one table has one metric
        first = next((row for row in measured if wanted["benchmark"] in ("", row[0])), measured[0])
        wanted["benchmark"], wanted["metric"] = first[0], first[1]
    chosen = query.settings.of(JobReportSettings).ci_benchmark_directions
    return BenchmarkOverview(
        window=window,
        subject=wanted,
        measured=measured,
        trends=await benchmark_rows.read_trends(query.tx, repositories, wanted, since=window.since),
        repositories=repositories,
        directions=chosen,
        compared=await compare_commits(query, window.owners, chosen),
    )


def page_values(overview: BenchmarkOverview) -> dict[str, Any]:
    """Return what the page shows."""
    table = arrange_devices(overview.trends, overview.repositories, overview.window.repo)
    return overview.window.page | {
        "overview": overview,
        "columns": table.columns,
        "rows": list(table.rows.items())[:MODELS_SHOWN],
        "more": max(len(table.rows) - MODELS_SHOWN, 0),
        "geomeans": table.geomeans if has_geomeans(overview.subject["metric"]) else [],
        "regressions": [trend for trend in overview.trends if trend["worse"]][:REGRESSIONS_SHOWN],
        "page_of": series_page,
        "words": lambda trend: benchmark_judgement.change_in_words(
            trend["metric"], trend["step_change"], overview.directions
        ),
        "better": benchmark_judgement.better_direction(overview.subject["metric"], overview.directions),
        "link": lambda **changed: _link(overview, changed),
        "rest": "&" + urlencode({name: value for name, value in overview.subject.items() if value}),
    }


def series_page(overview: BenchmarkOverview, trend: NamedSeriesTrend) -> str:
    """Return the page of a series."""
    repo = overview.repositories[trend["repository_id"]].repo
    return f"/{repo}/benchmarks/{trend['digest'].hex()[:DIGEST_DIGITS]}?days={overview.window.size}"


def json_answer(overview: BenchmarkOverview) -> Benchmarks:
    """Return the JSON of the series."""
    return Benchmarks(
        series=[
            fill_struct(
                BenchmarkTrend,
                trend,
                series=trend["digest"].hex()[:DIGEST_DIGITS],
                repo=overview.repositories[trend["repository_id"]].repo,
                standing=fill_struct(BenchmarkStanding, trend),
                better=benchmark_judgement.better_direction(trend["metric"], overview.directions),
            )
            for trend in overview.trends
        ],
        compared=overview.compared.answers() if overview.compared else [],
    )


VIEW = repository_view(
    "benchmarks",
    read=read_benchmarks,
    parameters=(BENCHMARK, MODEL, METRIC, DEVICE, BASE, HEAD),
    template="benchmarks.html",
    values=page_values,
    answer=json_answer,
    content=Benchmarks,
    name="benchmarks",
    summary="How benchmarks of a repository and of its backends stand",
    link=lambda overview: {"repo": overview.window.repo, "days": overview.window.size, **overview.subject},
)


def _device(trend: NamedSeriesTrend) -> str:
    return _joined(trend["device"], trend["arch"])


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _geomean(cells: Cells) -> float | None:
    values = [trend["value"] for series in cells for trend in series]
    above = [value for value in values if value and value > 0]
    return geometric_mean(above) if above else None


async def _values_on_commit(tx: Transaction, owners: set[int], sha: str) -> dict[int, float]:
    """Return the median of each series on a commit."""
    values_of: dict[int, list[float]] = {}
    for point in await benchmark_rows.points_on_commit(tx, owners, sha):
        if point["median"] is not None:
            values_of.setdefault(point["series_id"], []).append(point["median"])
    return {series: median(values) for series, values in values_of.items()}


def _difference(series: SeriesRow, before: float, after: float, chosen: Directions) -> SeriesDifference:
    by = (after - before) / abs(before)
    counts = abs(by) >= benchmark_judgement.least_change(series["metric"])
    return SeriesDifference(
        series=series,
        base=before,
        head=after,
        words=benchmark_judgement.change_in_words(series["metric"], by, chosen),
        worse=benchmark_judgement.is_worse(series["metric"], by, chosen) if counts else None,
    )


async def _repositories(query: Query, owners: set[int]) -> dict[int, ShownRepository]:
    """Return the repository of the page and its backends, by their ids."""
    repositories = dict.fromkeys(owners, ShownRepository(query[REPO], ""))
    labels = await day_window.backend_labels(query)
    for repo, ids in await day_window.visible_backends(query, query[REPO]):
        repositories |= dict.fromkeys(ids, ShownRepository(repo, labels.get(repo.casefold(), repo)))
    return repositories


def _link(overview: BenchmarkOverview, changed: Mapping[str, object]) -> str:
    now = {"days": overview.window.size, **overview.subject, **changed}
    parameters = urlencode({name: value for name, value in now.items() if value})
    return f"/{overview.window.repo}/benchmarks?{parameters}"
