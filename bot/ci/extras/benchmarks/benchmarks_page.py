"""GET /{owner}/{repo}/benchmarks and /api/ci/benchmarks/{owner}/{repo}: models by devices, regressions first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

from msgspec import Meta

from bot.ci.extras import shown_repositories
from bot.ci.extras.benchmarks import compare_commits, device_table, directions, series_rows
from bot.ci.extras.benchmarks.compare_commits import BASE, HEAD, ComparedSeries
from bot.ci.extras.benchmarks.device_table import Repository
from bot.ci.extras.benchmarks.directions import BenchmarkSettings
from bot.ci.extras.benchmarks.series_rows import SHOWN
from bot.ci.extras.benchmarks.tables import SeriesName, TrendValue
from bot.ci.extras.shown_window import read_window, repository_view
from bot.web import view_parameters as declare
from bot.web.answers import Answer, fill
from bot.web.row_answers import RowAnswer
from bot.web.view_parameters import REPO

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.ci.extras.benchmarks.compare_commits import Compared
    from bot.ci.extras.benchmarks.directions import Directions
    from bot.ci.extras.benchmarks.tables import NamedTrend, SeriesSubject
    from bot.ci.extras.shown_window import Window
    from bot.web.asked import Asked

MODELS, REGRESSIONS = 100, 30  # shown
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


@dataclass(frozen=True, kw_only=True)
class Found:
    """How the series of a repository and its backends stand."""

    window: Window
    asked: SeriesSubject
    measured: list[tuple[str, str, int, int]]
    trends: list[NamedTrend]
    repositories: Mapping[int, Repository]
    directions: Directions
    compared: Compared | None


async def read_benchmarks(asked: Asked) -> Found:
    """Read how series stand."""
    window = await read_window(asked)
    repositories = await _repositories(asked, window.owners)
    measured = await series_rows.measured(asked.tx, repositories, since=window.since)
    wanted: SeriesSubject = {
        "benchmark": asked[BENCHMARK], "model": asked[MODEL], "metric": asked[METRIC], "device": asked[DEVICE],
    }  # fmt: skip
    if asked.for_page and measured and not wanted["metric"]:  # one table has one metric
        first = next((one for one in measured if wanted["benchmark"] in ("", one[0])), measured[0])
        wanted["benchmark"], wanted["metric"] = first[0], first[1]
    chosen = asked.settings.of(BenchmarkSettings).ci_benchmark_directions
    return Found(
        window=window,
        asked=wanted,
        measured=measured,
        trends=await series_rows.trends(asked.tx, repositories, wanted, since=window.since),
        repositories=repositories,
        directions=chosen,
        compared=await compare_commits.compare(asked, window.owners, chosen),
    )


async def _repositories(asked: Asked, owners: set[int]) -> dict[int, Repository]:
    """Return the repository of the page and its backends, by their ids."""
    found = dict.fromkeys(owners, Repository(asked[REPO], ""))
    labels = await shown_repositories.labels(asked)
    for repo, ids in await shown_repositories.backends(asked, asked[REPO]):
        found |= dict.fromkeys(ids, Repository(repo, labels.get(repo.casefold(), repo)))
    return found


def show(found: Found) -> dict[str, Any]:
    """Return what the page shows."""
    table = device_table.arrange(found.trends, found.repositories, found.window.repo)
    return found.window.page | {
        "found": found,
        "columns": table.columns,
        "rows": list(table.rows.items())[:MODELS],
        "more": max(len(table.rows) - MODELS, 0),
        "geomeans": table.geomeans if device_table.has_geomeans(found.asked["metric"]) else [],
        "regressions": [one for one in found.trends if one["worse"]][:REGRESSIONS],
        "page_of": page_of,
        "words": lambda one: directions.words(one["metric"], one["step_change"], found.directions),
        "better": directions.direction(found.asked["metric"], found.directions),
        "link": lambda **changed: _link(found, changed),
        "rest": "&" + urlencode({name: value for name, value in found.asked.items() if value}),
    }


def page_of(found: Found, one: NamedTrend) -> str:
    """Return the page of a series."""
    repo = found.repositories[one["repository_id"]].repo
    return f"/{repo}/benchmarks/{one['digest'].hex()[:SHOWN]}?days={found.window.size}"


def _link(found: Found, changed: Mapping[str, object]) -> str:
    now = {"days": found.window.size, **found.asked, **changed}
    asked = urlencode({name: value for name, value in now.items() if value})
    return f"/{found.window.repo}/benchmarks?{asked}"


def answer(found: Found) -> Benchmarks:
    """Return the JSON of the series."""
    return Benchmarks(
        series=[
            fill(
                BenchmarkTrend,
                one,
                series=one["digest"].hex()[:SHOWN],
                repo=found.repositories[one["repository_id"]].repo,
                standing=fill(BenchmarkStanding, one),
                better=directions.direction(one["metric"], found.directions),
            )
            for one in found.trends
        ],
        compared=found.compared.answers() if found.compared else [],
    )


VIEW = repository_view(
    "benchmarks",
    read=read_benchmarks,
    parameters=(BENCHMARK, MODEL, METRIC, DEVICE, BASE, HEAD),
    template="benchmarks.html",
    values=show,
    answer=answer,
    content=Benchmarks,
    name="benchmarks",
    summary="How benchmarks of a repository and of its backends stand",
    link=lambda found: {"repo": found.window.repo, "days": found.window.size, **found.asked},
)
