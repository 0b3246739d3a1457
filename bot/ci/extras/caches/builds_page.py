"""GET /{owner}/{repo}/builds and /api/ci/builds/{owner}/{repo}: what compiler caches save, and where they fail."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from msgspec import Meta

from bot.ci.extras import shown_days, shown_repositories
from bot.ci.extras.caches import build_rows, hit_rates
from bot.ci.extras.caches.receive_stats import CACHES
from bot.ci.extras.caches.tables import CacheDay, CacheTrend
from bot.queue import sums
from bot.web import html, parameters
from bot.web import operations as op
from bot.web import view_parameters as declare
from bot.web.answers import Answer, fill
from bot.web.charts import chart
from bot.web.refusals import NOT_FOUND, UNKNOWN_REPOSITORY
from bot.web.row_answers import RowAnswer
from bot.web.view import Json, Page, View
from bot.web.view_parameters import REPO, REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from bot.ci.extras.caches.hit_rates import Rate
    from bot.ci.extras.caches.tables import CacheDayRow, CacheTrendRow
    from bot.web.asked import Asked
    from bot.web.charts import Chart

SHOWN = 200  # lines of the table
REASONS = 8
LANGUAGES = 4  # lines of the chart beside all together
DAYS = declare.days()
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
class Found:
    """The builds of a repository."""

    repo: str
    window: int
    build: str
    first: int
    last: int
    builds: list[CacheTrendRow]
    days: list[CacheDayRow]
    backends: list[tuple[str, Rate, int]]  # name, rate, seconds
    counted_until: int | None


async def read_builds(asked: Asked) -> Found:
    """Read the builds of a repository."""
    tx, days, build = asked.tx, asked[DAYS], asked[BUILD]
    owners = await shown_repositories.owners(asked)
    last = tx.now // sums.DAY
    first = last - days + 1
    found = await build_rows.builds(tx, owners, since=first * sums.DAY)
    return Found(
        repo=asked[REPO],
        window=days,
        build=build,
        first=first,
        last=last,
        builds=[one for one in found if build in ("", one["base_name"])],
        days=_sum_by_day(await build_rows.days(tx, owners, first=first, base_name=build or None)),
        backends=await _backends(asked, first) if asked.for_page and not build else [],
        counted_until=await sums.counted_until(tx, CACHES, owners, first=first),
    )


async def _backends(asked: Asked, first: int) -> list[tuple[str, Rate, int]]:
    """Return the rate of each backend, the lowest first."""
    found = []
    for name, owners in await shown_repositories.backends(asked, asked[REPO]):
        if rows := await build_rows.days(asked.tx, owners, first=first):
            found.append((name, _rate(rows), sum(one["seconds"] for one in rows)))
    return sorted(found, key=lambda one: (2.0 if one[1].share is None else one[1].share, one[0]))


def _rate(rows: Sequence[CacheDayRow]) -> Rate:
    hits, misses = (hit_rates.add_counts(one[name] for one in rows) for name in ("hits", "misses"))
    return hit_rates.rates(hits, misses)[hit_rates.ALL]


def _sum_by_day(rows: Sequence[CacheDayRow]) -> list[CacheDayRow]:
    """Return one row for each day: all builds together."""
    by_day: defaultdict[int, list[CacheDayRow]] = defaultdict(list)
    for row in rows:
        by_day[row["day"]].append(row)
    return [_added(by_day[day]) for day in sorted(by_day)]


def _added(rows: list[CacheDayRow]) -> CacheDayRow:
    if len(rows) == 1:
        return rows[0]
    return {
        "repository_id": rows[0]["repository_id"],
        "base_name": "",
        "day": rows[0]["day"],
        "jobs": sum(one["jobs"] for one in rows),
        "seconds": sum(one["seconds"] for one in rows),
        "hits": hit_rates.add_counts(one["hits"] for one in rows),
        "misses": hit_rates.add_counts(one["misses"] for one in rows),
        "errors": sum(one["errors"] for one in rows),
        "not_cacheable": sum(one["not_cacheable"] for one in rows),
        "reasons": hit_rates.add_counts(one["reasons"] for one in rows),
    }


def show(found: Found) -> dict[str, Any]:
    """Return what the page shows."""
    reasons = hit_rates.add_counts(one["reasons"] for one in found.days)
    return {
        "repo": found.repo,
        "found": found,
        "windows": parameters.windows(found.window),
        "listed": found.builds[:SHOWN],
        "more": max(len(found.builds) - SHOWN, 0),
        "total": _rate(found.days),
        "charts": _charts(found),
        "reasons": list(reasons.items())[:REASONS],
        "not_cacheable": sum(one["not_cacheable"] for one in found.days),
        "rest": f"&build={quote(found.build)}" if found.build else "",
        "counted_until": found.counted_until,
    }


def _charts(found: Found) -> list[Chart]:
    by_day = {one["day"]: one for one in found.days}
    labels, days = shown_days.labels(found.first, found.last), range(found.first, found.last + 1)
    known = {day: hit_rates.rates(row["hits"], row["misses"]) for day, row in by_day.items()}
    lookups = hit_rates.add_counts(
        {language: sum(rate) for language, rate in one.items() if language} for one in known.values()
    )
    lines = [("all", _line(known, hit_rates.ALL, days))]
    if len(lookups) > 1:
        lines += [(language, _line(known, language, days)) for language in list(lookups)[:LANGUAGES]]
    minutes = [by_day[day]["seconds"] / 60 if day in by_day else None for day in days]
    return [
        chart("Hit rate of trusted runs", labels, lines, show=lambda value: f"{value:.0f} %", top=100.0),
        chart("Build minutes", labels, [("minutes", minutes)], show=lambda value: f"{value:,.0f} min"),
    ]


def _line(known: dict[int, dict[str, Rate]], language: str, days: range) -> list[float | None]:
    shares = (known[day][language].share if day in known and language in known[day] else None for day in days)
    return [None if share is None else share * 100 for share in shares]


def answer(found: Found) -> BuildCaches:
    """Return the JSON of the builds."""
    return BuildCaches(
        builds=[fill(BuildCache, one) for one in found.builds],
        days=[fill(BuildCacheDay, one, date=shown_days.iso(one["day"])) for one in found.days],
    )


VIEW = View(
    read=read_builds,
    parameters=(REPO, DAYS, BUILD),
    page=Page(path=f"{REPOSITORY}/builds", template="builds.html", values=show),
    json=Json(
        path="/api/ci/builds/{owner}/{repo}",
        answer=answer,
        content=BuildCaches,
        name="buildCaches",
        summary="What compiler caches save, by build and language",
        topic=op.CI,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY),
        link=lambda found: {"repo": found.repo, "days": found.window, "build": found.build},
    ),
)
VIEWS = (VIEW,)


def setup(app: web.Application) -> None:
    """Add what the template uses."""
    html.add_names(app, filters={"share": shown_days.share})
