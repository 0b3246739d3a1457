"""GET /{owner}/{repo}/benchmarks and /api/ci/benchmarks/{owner}/{repo}: models by devices, regressions first."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import geometric_mean
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import urlencode

from msgspec import Meta

from bot.ci.extras import shown_repositories
from bot.ci.extras.benchmarks import compare_commits, directions, series_rows
from bot.ci.extras.benchmarks.compare_commits import BASE, HEAD, ComparedSeries
from bot.ci.extras.benchmarks.directions import BenchmarkSettings
from bot.ci.extras.benchmarks.series_rows import SHOWN
from bot.ci.extras.benchmarks.tables import SeriesName, TrendValue
from bot.ci.extras.source_rows import DAY
from bot.web import operations as op
from bot.web import parameters
from bot.web import view_parameters as declare
from bot.web.answers import Answer, fill
from bot.web.refusals import NOT_FOUND, UNKNOWN_REPOSITORY
from bot.web.row_answers import RowAnswer
from bot.web.view import Json, Page, View
from bot.web.view_parameters import REPO, REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.ci.extras.benchmarks.compare_commits import Compared
    from bot.ci.extras.benchmarks.directions import Directions
    from bot.ci.extras.benchmarks.tables import NamedTrend, SeriesSubject
    from bot.web.asked import Asked

MODELS, COLUMNS, REGRESSIONS = 100, 12, 30  # shown
DAYS = declare.days()
BENCHMARK = declare.text("benchmark", "one benchmark")
MODEL = declare.text("model", "one model")
METRIC = declare.text("metric", "one metric")
DEVICE = declare.text("device", "one device")


class BenchmarkStanding(RowAnswer, row=TrendValue, frozen=True, kw_only=True):
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


class Column(NamedTuple):
    """A device of a repository."""

    repo: str
    label: str
    device: str


@dataclass(frozen=True, kw_only=True)
class Found:
    """How the series of a repository and its backends stand."""

    repo: str
    window: int
    asked: SeriesSubject
    measured: list[tuple[str, str, int, int]]
    trends: list[NamedTrend]
    names: Mapping[int, str]  # of repositories
    labels: Mapping[int, str]
    directions: Directions
    compared: Compared | None


async def read_benchmarks(asked: Asked) -> Found:
    """Read how series stand."""
    tx, window = asked.tx, asked[DAYS]
    own = await shown_repositories.owners(asked)
    names, labels = dict.fromkeys(own, asked[REPO]), dict.fromkeys(own, "")
    called = await shown_repositories.labels(asked)
    for repo, ids in await shown_repositories.backends(asked, asked[REPO]):
        names |= dict.fromkeys(ids, repo)
        labels |= dict.fromkeys(ids, called.get(repo.casefold(), repo))
    since = tx.now - window * DAY
    measured = await series_rows.measured(tx, names, since=since)
    wanted: SeriesSubject = {
        "benchmark": asked[BENCHMARK], "model": asked[MODEL], "metric": asked[METRIC], "device": asked[DEVICE],
    }  # fmt: skip
    if asked.for_page and measured and not wanted["metric"]:  # one table has one metric
        first = next((one for one in measured if wanted["benchmark"] in ("", one[0])), measured[0])
        wanted["benchmark"], wanted["metric"] = first[0], first[1]
    chosen = asked.settings.of(BenchmarkSettings).ci_benchmark_directions
    return Found(
        repo=asked[REPO],
        window=window,
        asked=wanted,
        measured=measured,
        trends=await series_rows.trends(tx, names, wanted, since=since),
        names=names,
        labels=labels,
        directions=chosen,
        compared=await compare_commits.compare(asked, own, chosen),
    )


def show(found: Found) -> dict[str, Any]:
    """Return what the page shows."""
    columns = _columns(found)
    rows = _table(found, columns)
    return {
        "repo": found.repo,
        "found": found,
        "windows": parameters.windows(found.window),
        "columns": columns,
        "rows": list(rows.items())[:MODELS],
        "more": max(len(rows) - MODELS, 0),
        "geomeans": _geomeans(found, columns, rows),
        "regressions": [one for one in found.trends if one["worse"]][:REGRESSIONS],
        "page_of": page_of,
        "words": lambda one: directions.words(one["metric"], one["step_change"], found.directions),
        "better": directions.direction(found.asked["metric"], found.directions),
        "link": lambda **changed: _link(found, changed),
        "rest": "&" + urlencode({name: value for name, value in found.asked.items() if value}),
    }


def page_of(found: Found, one: NamedTrend) -> str:
    """Return the page of a series."""
    return (
        f"/{found.names[one['repository_id']]}/benchmarks/{one['digest'].hex()[:SHOWN]}?days={found.window}"
    )


def _link(found: Found, changed: Mapping[str, object]) -> str:
    now = {"days": found.window, **found.asked, **changed}
    return f"/{found.repo}/benchmarks?" + urlencode({name: value for name, value in now.items() if value})


def _columns(found: Found) -> list[Column]:
    """Return the devices: upstream's first."""
    seen = {
        Column(found.names[one["repository_id"]], found.labels[one["repository_id"]], _device(one))
        for one in found.trends
    }
    ordered = sorted(
        seen, key=lambda one: (one.repo.casefold() != found.repo.casefold(), one.label, one.device)
    )
    return ordered[:COLUMNS]


def _device(one: NamedTrend) -> str:
    return " ".join(part for part in (one["device"], one["arch"]) if part)


def _table(found: Found, columns: list[Column]) -> dict[tuple[str, str], list[list[NamedTrend]]]:
    """Return the series by model and compiler, for each column; those with a regression first, as they come."""
    places = {(column.repo, column.device): at for at, column in enumerate(columns)}
    rows: defaultdict[tuple[str, str], list[list[NamedTrend]]] = defaultdict(lambda: [[] for _ in columns])
    for one in found.trends:
        at = places.get((found.names[one["repository_id"]], _device(one)))
        if at is not None:
            about = " ".join(part for part in (one["backend"], one["mode"], one["dtype"]) if part)
            rows[one["model"], about][at].append(one)
    return rows


def _geomeans(
    found: Found, columns: list[Column], rows: Mapping[tuple[str, str], list[list[NamedTrend]]]
) -> list[float | None]:
    """Return the geometric mean of each column, of speedups alone."""
    if not fnmatchcase(found.asked["metric"].casefold(), directions.SPEEDUP):
        return []
    means: list[float | None] = []
    for at in range(len(columns)):
        values = [one["value"] for cells in rows.values() for one in cells[at] if one["value"]]
        above = [value for value in values if value > 0]
        means.append(geometric_mean(above) if above else None)
    return means


def answer(found: Found) -> Benchmarks:
    """Return the JSON of the series."""
    return Benchmarks(
        series=[
            fill(
                BenchmarkTrend,
                one,
                series=one["digest"].hex()[:SHOWN],
                repo=found.names[one["repository_id"]],
                standing=fill(BenchmarkStanding, one),
                better=directions.direction(one["metric"], found.directions),
            )
            for one in found.trends
        ],
        compared=found.compared.answers() if found.compared else [],
    )


VIEW = View(
    read=read_benchmarks,
    parameters=(REPO, DAYS, BENCHMARK, MODEL, METRIC, DEVICE, BASE, HEAD),
    page=Page(path=f"{REPOSITORY}/benchmarks", template="benchmarks.html", values=show),
    json=Json(
        path="/api/ci/benchmarks/{owner}/{repo}",
        answer=answer,
        content=Benchmarks,
        name="benchmarks",
        summary="How benchmarks of a repository and of its backends stand",
        topic=op.CI,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY),
        link=lambda found: {"repo": found.repo, "days": found.window, **found.asked},
    ),
)
