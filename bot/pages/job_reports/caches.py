"""GET /{owner}/{repo}/builds and /api/ci/builds/{owner}/{repo}: what compiler caches save, and where they fail."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from msgspec import Meta

from bot.job_reports import caches
from bot.job_reports.caches import ALL_LANGUAGES, CACHE_SUM
from bot.job_reports.tables import CacheDay, CacheTrend
from bot.pages.job_reports import day_window
from bot.pages.job_reports.day_window import read_window, repository_view
from bot.web import parameters as declare
from bot.web.answers import Answer, RowAnswer, fill_struct
from bot.web.parameters import REPO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.job_reports.caches import HitRate
    from bot.job_reports.tables import CacheDayRow, CacheTrendRow
    from bot.pages.job_reports.day_window import DayWindow
    from bot.web.charts import Chart
    from bot.web.parameters import Query

BUILDS_SHOWN = 200  # lines of the table
REASONS = 8
LANGUAGES = 4  # lines of the chart beside all together
UNKNOWN_RATE = 2.0  # the place of a rate that is not known: after all others
BUILD = declare.text("build", "one build: the name of its jobs, without shard and configuration")


class BuildCache(RowAnswer, row=CacheTrend, rename={"base_name": "build"}, frozen=True, kw_only=True):
    """How the cache of a build stands in one language, by its newest trusted run."""

    language: Annotated[str, Meta(description="empty: all together")]
    rate: Annotated[float | None, Meta(description="hits / (hits + misses); null: nothing was looked up")]
    usual: Annotated[float | None, Meta(description="the median of the ten runs before, or before it fell")]
    fell_sha: Annotated[str | None, Meta(description="the first commit on which it is 20 points lower")]


class BuildCacheDay(RowAnswer, row=CacheDay, without=("day",), frozen=True, kw_only=True):
    """A day of the chosen build, or of all, in trusted runs."""

    date: str


class BuildCaches(Answer, frozen=True, kw_only=True):
    """What compiler caches save"""

    builds: Annotated[list[BuildCache], Meta(description="those that fell first, then the lowest rates")]
    days: list[BuildCacheDay]


@dataclass(frozen=True, kw_only=True)
class RepositoryBuilds:
    """The builds of a repository."""

    window: DayWindow
    build: str
    builds: list[CacheTrendRow]
    days: list[CacheDayRow]
    backends: list[tuple[str, HitRate, int]]  # name, rate, seconds


async def read_builds(query: Query) -> RepositoryBuilds:
    """Read the builds of a repository."""
    tx, build = query.tx, query[BUILD]
    window = await read_window(query, CACHE_SUM)
    builds = await caches.read_builds(tx, window.owners, since=window.since)
    days = await caches.read_days(tx, window.owners, first=window.first, base_name=build or None)
    return RepositoryBuilds(
        window=window,
        build=build,
        builds=[row for row in builds if build in ("", row["base_name"])],
        days=_sum_by_day(days),
        backends=await _backends(query, window.first) if query.for_page and not build else [],
    )


def page_values(result: RepositoryBuilds) -> dict[str, Any]:
    """Return what the page shows."""
    counted = caches.add_up_builds(result.days)
    return result.window.page | {
        "result": result,
        "listed": result.builds[:BUILDS_SHOWN],
        "more": max(len(result.builds) - BUILDS_SHOWN, 0),
        "total": _rate(result.days),
        "charts": _charts(result),
        "reasons": list(counted["reasons"].items())[:REASONS],
        "not_cacheable": counted["not_cacheable"],
        "rest": f"&build={quote(result.build)}" if result.build else "",
    }


def json_answer(result: RepositoryBuilds) -> BuildCaches:
    """Return the JSON of the builds."""
    return BuildCaches(
        builds=[fill_struct(BuildCache, row) for row in result.builds],
        days=[fill_struct(BuildCacheDay, row, date=day_window.iso_day(row["day"])) for row in result.days],
    )


VIEW = repository_view(
    "builds",
    read=read_builds,
    parameters=(BUILD,),
    template="builds.html",
    values=page_values,
    answer=json_answer,
    content=BuildCaches,
    name="buildCaches",
    summary="What compiler caches save, by build and language",
    link=lambda result: {"repo": result.window.repo, "days": result.window.size, "build": result.build},
)


async def _backends(query: Query, first: int) -> list[tuple[str, HitRate, int]]:
    """Return the rate of each backend, the lowest first."""
    rates = []
    for name, owners in await day_window.visible_backends(query, query[REPO]):
        if rows := await caches.read_days(query.tx, owners, first=first):
            rates.append((name, _rate(rows), sum(row["seconds"] for row in rows)))
    return sorted(
        rates, key=lambda entry: (UNKNOWN_RATE if entry[1].share is None else entry[1].share, entry[0])
    )


def _rate(rows: Sequence[CacheDayRow]) -> HitRate:
    counted = caches.add_up_builds(rows)
    return caches.hit_rates(counted["hits"], counted["misses"])[ALL_LANGUAGES]


def _sum_by_day(rows: Sequence[CacheDayRow]) -> list[CacheDayRow]:
    """Return one row for each day: all builds together."""
    by_day: defaultdict[int, list[CacheDayRow]] = defaultdict(list)
    for row in rows:
        by_day[row["day"]].append(row)
    return [_added(by_day[day]) for day in sorted(by_day)]


def _added(rows: list[CacheDayRow]) -> CacheDayRow:
    counted = caches.add_up_builds(rows)
    jobs, seconds = (sum(row[name] for row in rows) for name in ("jobs", "seconds"))
    return {**rows[0], "base_name": "", "jobs": jobs, "seconds": seconds, **counted}  # type: ignore[typeddict-item]


def _charts(result: RepositoryBuilds) -> list[Chart]:
    rates = {row["day"]: caches.hit_rates(row["hits"], row["misses"]) for row in result.days}
    lookups = caches.add_counts(
        {language: sum(rate) for language, rate in by_language.items() if language}
        for by_language in rates.values()
    )
    languages = list(lookups)[:LANGUAGES] if len(lookups) > 1 else []
    shares = [
        ("all", _shares(rates, ALL_LANGUAGES)),
        *((language, _shares(rates, language)) for language in languages),
    ]
    minutes = {row["day"]: row["seconds"] / 60 for row in result.days}
    draw = result.window.chart
    return [
        draw("Hit rate of trusted runs", shares, show=lambda value: f"{value:.0f} %", top=100.0),
        draw("Build minutes", [("minutes", minutes)], show=lambda value: f"{value:,.0f} min"),
    ]


def _shares(rates: dict[int, dict[str, HitRate]], language: str) -> dict[int, float]:
    """Return the hit rate of a language in percent, by day."""
    known = (
        (day, by_language[language].share) for day, by_language in rates.items() if language in by_language
    )
    return {day: share * 100 for day, share in known if share is not None}
