"""Compiler caches: hits and misses of each build by day and language, and since when its rate has fallen."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from bot.db.rows import select
from bot.evidence.collect.receivers import MIB
from bot.job_reports.documents import SmallDocument
from bot.job_reports.parse.values import CacheStats, Parsed
from bot.job_reports.tables import (
    CacheDayRow,
    CacheJob,
    CacheStatsRow,
    CacheTrend,
    CacheTrendRow,
    ci_cache_day,
    ci_cache_stats,
    ci_cache_trend,
    ci_source,
)
from bot.job_reports.trends import LEAST_BEFORE, LEVEL_POINTS
from bot.queue.sums import Sum

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.job_reports.tables import SourceRow
    from bot.queue.sums import CountedSum, SumPlace

ALL_LANGUAGES = ""  # all languages together
FALL = 0.2  # 20 points
NEWEST_RUNS = 60  # runs that say how a build stands
BUILDS_MOST = 2_000  # builds and languages of one page
JOBS_MOST = 5_000  # of a day
STAT, CACHE_DAY, TREND, SOURCE = ci_cache_stats.c, ci_cache_day.c, ci_cache_trend.c, ci_source.c
CACHE_SUM = Sum(
    name="caches",
    tables=(ci_cache_day,),
    group=("repository_id", "base_name"),
    count="bot.job_reports.caches:count_cache_day",
    after="bot.job_reports.caches:judge_build",
    delay=10,
)
CACHE_DOCUMENT = SmallDocument(
    table=ci_cache_stats,
    called="caches of jobs",
    answer=Parsed[CacheStats],
    most_written=16 * MIB,
    sum=CACHE_SUM,
    kept={"days of caches": ci_cache_day.c.day, "builds with caches": ci_cache_trend.c.at},
)
CACHE_RECEIVER, prune_caches = CACHE_DOCUMENT.receiver, CACHE_DOCUMENT.prune


class HitRate(NamedTuple):
    """Hits and misses of a cache."""

    hits: int
    misses: int

    @property
    def share(self) -> float | None:
        """The hit rate; None where nothing was looked up."""
        looked_up = self.hits + self.misses
        return self.hits / looked_up if looked_up else None


class CacheStanding(NamedTuple):
    """The newest rate beside the usual one."""

    now: float
    usual: float | None
    fell_at: int | None  # the place of the first run that is much lower


def hit_rates(hits: Mapping[str, int], misses: Mapping[str, int]) -> dict[str, HitRate]:
    """Return the rate of each language, and of all together.

    >>> hit_rates({"C/C++": 300, "Rust": 0}, {"C/C++": 19, "Rust": 264})[""]
    HitRate(hits=300, misses=283)
    """
    by_language = {
        language: HitRate(hits.get(language, 0), misses.get(language, 0))
        for language in sorted({*hits, *misses} - {ALL_LANGUAGES})
    }
    return {ALL_LANGUAGES: HitRate(sum(hits.values()), sum(misses.values()))} | by_language


def judge_shares(shares: Sequence[float]) -> CacheStanding:
    """Compare the newest of some rates with those before; oldest first.

    A run that is 20 points below the median of the ten before is a fall; it ends once a run is near that median again.

    >>> judge_shares([0.95] * 8 + [0.2, 0.21])
    CacheStanding(now=0.21, usual=0.95, fell_at=8)
    >>> judge_shares([0.95] * 8 + [0.2, 0.94]).fell_at is None
    True
    """
    usual: list[float] = []
    fell_at = None
    for at, share in enumerate(shares):
        before = usual[-LEVEL_POINTS:]
        low = len(before) >= LEAST_BEFORE and round(median(before) - share, 9) >= FALL
        if low:
            fell_at = at if fell_at is None else fell_at
        else:
            fell_at = None
            usual.append(share)
    before = usual[-LEVEL_POINTS:] if fell_at is not None else usual[-LEVEL_POINTS - 1 : -1]
    return CacheStanding(shares[-1], median(before) if len(before) >= LEAST_BEFORE else None, fell_at)


def add_up_builds(rows: Collection[CacheJob | CacheDayRow]) -> dict[str, Any]:
    """Return the sums of jobs or days."""
    return {
        "hits": add_counts(row["hits"] for row in rows),
        "misses": add_counts(row["misses"] for row in rows),
        "errors": sum(row["errors"] for row in rows),
        "not_cacheable": sum(row["not_cacheable"] for row in rows),
        "reasons": add_counts(row["reasons"] for row in rows),
    }


def add_counts(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums by name, the largest first."""
    sums: dict[str, int] = {}
    for each in counts:
        for name, number in each.items():
            sums[name] = sums.get(name, 0) + number
    return dict(sorted(sums.items(), key=lambda entry: (-entry[1], entry[0])))


async def stats_of_source(tx: Transaction, source: SourceRow) -> list[CacheStatsRow]:
    """Return what a file said of each tool."""
    query = select(CacheStatsRow, ci_cache_stats).where(
        STAT.repository_id == source["repository_id"], STAT.object_id == source["object_id"]
    )
    return await tx.fetch(query.order_by(STAT.tool))


async def jobs_of_day(tx: Transaction, repository_id: int, base_name: str, day: int) -> list[CacheJob]:
    """Return the statistics of a build's caches in trusted runs of a day."""
    query = select(CacheJob, ci_cache_stats).where(
        STAT.repository_id == repository_id, STAT.base_name == base_name, STAT.day == day, STAT.trusted
    )
    return await tx.fetch(query.order_by(STAT.at, STAT.object_id).limit(JOBS_MOST))


async def seconds_of_day(tx: Transaction, repository_id: int, base_name: str, day: int) -> int:
    """Return how long a build's jobs with statistics took, each counted once."""
    jobs = (
        sa.select(SOURCE.job_id, SOURCE.run_attempt, sa.func.max(SOURCE.seconds).label("seconds"))
        .select_from(
            ci_source.join(
                ci_cache_stats,
                sa.and_(SOURCE.repository_id == STAT.repository_id, SOURCE.object_id == STAT.object_id),
            )
        )
        .where(
            STAT.repository_id == repository_id, STAT.base_name == base_name, STAT.day == day, STAT.trusted
        )
        .group_by(SOURCE.job_id, SOURCE.run_attempt)
        .subquery()
    )
    return int((await tx.run(sa.select(sa.func.coalesce(sa.func.sum(jobs.c.seconds), 0)))).scalar_one())


async def judge_build(tx: Transaction, place: SumPlace) -> None:
    """Judge a build of a repository by language, once one of its days was counted."""
    repository_id, base_name = place.group
    query = select(CacheJob, ci_cache_stats).where(
        STAT.repository_id == repository_id, STAT.base_name == base_name, STAT.trusted
    )
    newest = await tx.fetch(
        query.order_by(STAT.day.desc(), STAT.at.desc(), STAT.object_id).limit(NEWEST_RUNS)
    )
    await tx.run(
        sa.delete(ci_cache_trend).where(TREND.repository_id == repository_id, TREND.base_name == base_name)
    )
    if trends := [{"repository_id": repository_id, **trend} for trend in _language_trends(newest[::-1])]:
        await tx.run(sa.insert(ci_cache_trend), trends)


async def read_builds(tx: Transaction, owners: Collection[int], *, since: int) -> list[CacheTrendRow]:
    """Return the trends of builds that ran lately; fallen ones first, then the lowest rates."""
    query = select(CacheTrendRow, ci_cache_trend).where(
        TREND.repository_id.in_(sorted(owners)), TREND.at >= since
    )
    order = (TREND.fell_at.is_(None), sa.func.coalesce(TREND.rate, 2.0), TREND.base_name, TREND.language)
    return await tx.fetch(query.order_by(*order).limit(BUILDS_MOST))


async def read_days(
    tx: Transaction, owners: Collection[int], *, first: int, base_name: str | None = None
) -> list[CacheDayRow]:
    """Return the days of one build, or of all, from a day on."""
    query = select(CacheDayRow, ci_cache_day).where(
        CACHE_DAY.repository_id.in_(sorted(owners)), CACHE_DAY.day >= first
    )
    if base_name is not None:
        query = query.where(CACHE_DAY.base_name == base_name)
    return await tx.fetch(query.order_by(CACHE_DAY.day))


async def count_cache_day(context: Context, place: SumPlace) -> CountedSum:
    """Return the sums of a build on a day, of trusted runs."""
    repository_id, base_name = place.group
    async with context.store.read() as tx:
        jobs = await jobs_of_day(tx, repository_id, base_name, place.day)
        seconds = await seconds_of_day(tx, repository_id, base_name, place.day)
    counted = {"jobs": len(jobs), "seconds": seconds, **add_up_builds(jobs)}
    return {ci_cache_day: [counted] if jobs else []}


def _language_trends(jobs: Sequence[CacheJob]) -> list[CacheTrend]:
    """Return the trend of each language; `jobs` are oldest first."""
    by_language: dict[str, list[tuple[CacheJob, HitRate]]] = {}
    for job in jobs:
        for language, rate in hit_rates(job["hits"], job["misses"]).items():
            by_language.setdefault(language, []).append((job, rate))
    return [_language_trend(language, by_language[language]) for language in sorted(by_language)]


def _language_trend(language: str, rated_jobs: Sequence[tuple[CacheJob, HitRate]]) -> CacheTrend:
    known = [(job, rate.share) for job, rate in rated_jobs if rate.share is not None]
    judged: CacheStanding | None = judge_shares([share for _, share in known]) if known else None
    fell = known[judged.fell_at][0] if judged and judged.fell_at is not None else None
    (newest, rate) = rated_jobs[-1]
    return {
        "base_name": newest["base_name"],
        "language": language,
        "at": newest["at"],
        "head_sha": newest["head_sha"],
        "hits": rate.hits,
        "misses": rate.misses,
        "rate": rate.share,
        "usual": judged and judged.usual,
        "fell_at": fell and fell["at"],
        "fell_sha": fell and fell["head_sha"],
    }
