"""Statistics that compiler caches leave, and how a day of a build is counted from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.collect.receiving import MIB
from bot.ci.extras.caches import build_rows, hit_rates
from bot.ci.extras.caches.tables import ci_cache_day, ci_cache_stats, ci_cache_trend
from bot.ci.extras.parse.parsed import CacheStats, Parsed
from bot.ci.extras.small_documents import SmallDocument
from bot.queue.sums import Sum

if TYPE_CHECKING:
    from bot.context import Context
    from bot.queue.sums import Counted, Place

CACHES = Sum(
    name="caches",
    tables=(ci_cache_day,),
    group=("repository_id", "base_name"),
    count="bot.ci.extras.caches.documents:count_day",
    after="bot.ci.extras.caches.build_rows:judge_build",
    delay=10,
)
STATS = SmallDocument(
    table=ci_cache_stats,
    called="caches of jobs",
    answer=Parsed[CacheStats],
    most_written=16 * MIB,
    sum=CACHES,
    kept={"days of caches": ci_cache_day.c.day, "builds with caches": ci_cache_trend.c.at},
)
RECEIVER, prune = STATS.receiver, STATS.prune


async def count_day(context: Context, place: Place) -> Counted:
    """Return the sums of a build on a day, of trusted runs."""
    repository_id, base_name = place.group
    async with context.store.read() as tx:
        jobs = await build_rows.jobs_of_day(tx, repository_id, base_name, place.day)
        seconds = await build_rows.seconds_of_day(tx, repository_id, base_name, place.day)
    counted = {"jobs": len(jobs), "seconds": seconds, **hit_rates.add_up(jobs)}
    return {ci_cache_day: [counted] if jobs else []}
