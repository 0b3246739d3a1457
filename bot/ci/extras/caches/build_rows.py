"""Statements about compiler caches: the jobs of a build, its days, and how it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.extras.caches import hit_rates
from bot.ci.extras.caches.tables import (
    CacheDayRow,
    CacheJob,
    CacheStatsRow,
    CacheTrend,
    CacheTrendRow,
    ci_cache_day,
    ci_cache_stats,
    ci_cache_trend,
)
from bot.ci.extras.tables import ci_source
from bot.db.rows import select

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bot.ci.extras.caches.hit_rates import Rate, Standing
    from bot.ci.extras.tables import SourceRow
    from bot.db.transaction import Transaction
    from bot.queue.sums import Place

NEWEST = 60  # runs that say how a build stands
LISTED = 2_000  # builds and languages of one page
JOBS_MOST = 5_000  # of a day
J, D, T, S = ci_cache_stats.c, ci_cache_day.c, ci_cache_trend.c, ci_source.c


async def stats_of_source(tx: Transaction, source: SourceRow) -> list[CacheStatsRow]:
    """Return what a file said of each tool."""
    query = select(CacheStatsRow, ci_cache_stats).where(
        J.repository_id == source["repository_id"], J.object_id == source["object_id"]
    )
    return await tx.fetch(query.order_by(J.tool))


async def jobs_of_day(tx: Transaction, repository_id: int, base_name: str, day: int) -> list[CacheJob]:
    """Return what the caches of a build said in trusted runs of a day."""
    query = select(CacheJob, ci_cache_stats).where(
        J.repository_id == repository_id, J.base_name == base_name, J.day == day, J.trusted
    )
    return await tx.fetch(query.order_by(J.at, J.object_id).limit(JOBS_MOST))


async def seconds_of_day(tx: Transaction, repository_id: int, base_name: str, day: int) -> int:
    """Return how long the jobs of a build took that told of their caches, each counted once."""
    jobs = (
        sa.select(S.job_id, S.run_attempt, sa.func.max(S.seconds).label("seconds"))
        .select_from(
            ci_source.join(
                ci_cache_stats, sa.and_(S.repository_id == J.repository_id, S.object_id == J.object_id)
            )
        )
        .where(J.repository_id == repository_id, J.base_name == base_name, J.day == day, J.trusted)
        .group_by(S.job_id, S.run_attempt)
        .subquery()
    )
    return int((await tx.run(sa.select(sa.func.coalesce(sa.func.sum(jobs.c.seconds), 0)))).scalar_one())


async def judge_build(tx: Transaction, place: Place) -> None:
    """Store how a build of a repository stands, language by language, once one of its days was counted."""
    repository_id, base_name = place.group
    query = select(CacheJob, ci_cache_stats).where(
        J.repository_id == repository_id, J.base_name == base_name, J.trusted
    )
    newest = await tx.fetch(query.order_by(J.day.desc(), J.at.desc(), J.object_id).limit(NEWEST))
    await tx.run(sa.delete(ci_cache_trend).where(T.repository_id == repository_id, T.base_name == base_name))
    if found := [{"repository_id": repository_id, **one} for one in _standings(newest[::-1])]:
        await tx.run(sa.insert(ci_cache_trend), found)


def _standings(jobs: Sequence[CacheJob]) -> list[CacheTrend]:
    """Return how each language stands; `jobs` are oldest first."""
    by_language: dict[str, list[tuple[CacheJob, Rate]]] = {}
    for job in jobs:
        for language, rate in hit_rates.rates(job["hits"], job["misses"]).items():
            by_language.setdefault(language, []).append((job, rate))
    return [_standing(language, by_language[language]) for language in sorted(by_language)]


def _standing(language: str, found: Sequence[tuple[CacheJob, Rate]]) -> CacheTrend:
    known = [(job, rate.share) for job, rate in found if rate.share is not None]
    judged: Standing | None = hit_rates.judge([share for _, share in known]) if known else None
    fell = known[judged.fell_at][0] if judged and judged.fell_at is not None else None
    (newest, rate) = found[-1]
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


async def builds(tx: Transaction, owners: Collection[int], *, since: int) -> list[CacheTrendRow]:
    """Return how builds stand that ran lately; those that fell first, then the lowest rates."""
    query = select(CacheTrendRow, ci_cache_trend).where(T.repository_id.in_(sorted(owners)), T.at >= since)
    order = (T.fell_at.is_(None), sa.func.coalesce(T.rate, 2.0), T.base_name, T.language)
    return await tx.fetch(query.order_by(*order).limit(LISTED))


async def days(
    tx: Transaction, owners: Collection[int], *, first: int, base_name: str | None = None
) -> list[CacheDayRow]:
    """Return the days of one build from a day on, or of all."""
    query = select(CacheDayRow, ci_cache_day).where(D.repository_id.in_(sorted(owners)), D.day >= first)
    if base_name is not None:
        query = query.where(D.base_name == base_name)
    return await tx.fetch(query.order_by(D.day))
