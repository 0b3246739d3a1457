"""The receiver of compiler caches' statistics, and the daily sum of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.ci.collect.receiving import MIB, Receiver
from bot.ci.extras import source_rows
from bot.ci.extras.caches import build_rows, hit_rates
from bot.ci.extras.caches.tables import ci_cache_day, ci_cache_stats, ci_cache_trend
from bot.ci.extras.parse.parsed import CacheStats, Parsed
from bot.queue import sums
from bot.queue.sums import Place, Sum

if TYPE_CHECKING:
    from bot.ci.collect.receiving import Fetched
    from bot.ci.extras.caches.tables import CacheJob, CacheStatsRow
    from bot.ci.extras.tables import SourceRow
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.sums import Counted

CACHES = Sum(
    name="caches",
    tables=(ci_cache_day,),
    group=("repository_id", "base_name"),
    count="bot.ci.extras.caches.receive_stats:count_day",
    after="bot.ci.extras.caches.build_rows:judge_build",
    delay=10,
)


async def store_stats(
    tx: Transaction, context: Context, fetched: Fetched, parsed: Parsed[CacheStats], _blob: str | None
) -> None:
    """Store what a job's caches said, and have the day of its build counted again."""
    stored = await source_rows.store_source(tx, context, fetched, parsed)
    if stored is None:
        return
    await source_rows.replace_rows(
        tx, ci_cache_stats, stored.row, [_row(stored.row, one) for one in parsed.rows]
    )
    places = {Place((one["repository_id"], one["base_name"]), one["day"]) for one in stored.trusted}
    sums.request(tx, CACHES, sorted(places))


def _row(source: SourceRow, stats: CacheStats) -> CacheStatsRow:
    return {
        "repository_id": source["repository_id"],
        "object_id": source["object_id"],
        "tool": stats.tool,
        "base_name": source["base_name"],
        "day": source["day"],
        "at": source["at"],
        "trusted": source["trusted"],
        "head_sha": source["head_sha"],
        "requests": stats.requests,
        "executed": stats.executed,
        "hits": stats.hits,
        "misses": stats.misses,
        "errors": stats.errors,
        "not_cacheable": stats.not_cacheable,
        "reasons": stats.reasons,
        "write_seconds": stats.write_seconds,
        "read_seconds": stats.read_seconds,
        "version": stats.version,
        "raw": stats.raw,
    }


async def count_day(context: Context, place: Place) -> Counted:
    """Return the sums of a build on a day, of trusted runs."""
    repository_id, base_name = place.group
    async with context.store.read() as tx:
        jobs = await build_rows.jobs_of_day(tx, repository_id, base_name, place.day)
        seconds = await build_rows.seconds_of_day(tx, repository_id, base_name, place.day)
    return {ci_cache_day: [_sum(jobs, seconds)] if jobs else []}


def _sum(jobs: list[CacheJob], seconds: int) -> dict[str, Any]:
    return {
        "jobs": len(jobs),
        "seconds": seconds,
        "hits": hit_rates.add_counts(one["hits"] for one in jobs),
        "misses": hit_rates.add_counts(one["misses"] for one in jobs),
        "errors": sum(one["errors"] for one in jobs),
        "not_cacheable": sum(one["not_cacheable"] for one in jobs),
        "reasons": hit_rates.add_counts(one["reasons"] for one in jobs),
    }


async def prune(context: Context) -> dict[str, int]:
    """Delete what caches said past the retention of results; the sums go later, with the records."""
    deleted = await source_rows.delete_old(context, {"caches of jobs": ci_cache_stats})
    kept = context.settings.record_retention_days * source_rows.DAY
    return deleted | await build_rows.delete_sums(
        context, (ci_cache_day, ci_cache_trend), before=context.clock.now() - kept
    )


RECEIVER = Receiver(store=store_stats, answer=Parsed[CacheStats], most_written=16 * MIB)
