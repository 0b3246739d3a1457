"""Deleting what was collected: blobs past their retention or over the limit, blobs no row names, old rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from bot.ci.collect.blobs import BLOBS
from bot.ci.collect.settings import CollectSettings
from bot.ci.collect.store import fetches
from bot.ci.collect.tables import ci_artifact, ci_fetch, ci_listing, ci_storage_day
from bot.core import metrics
from bot.ingest.prune import delete_rows

if TYPE_CHECKING:
    from bot.ci.collect.blob_store import BlobInfo
    from bot.context import Context

DAY = 86_400_000  # milliseconds
BATCH = 200
PAUSE = 0.02  # seconds between two batches
LOG_PREFIX = "log/"


async def prune_collected(context: Context) -> dict[str, int]:
    """Delete what is past its retention, then the oldest logs where blobs still are over the limit."""
    limits, now = context.settings.of(CollectSettings), context.clock.now()
    kept = {
        LOG_PREFIX: limits.ci_log_retention_days,
        "results/": limits.ci_result_retention_days,
        "util/": limits.ci_utilization_retention_days,
    }
    deleted = 0
    for prefix, days in kept.items():
        deleted += await _past(context, prefix, before=now - days * DAY, words=f"kept for {days} days")
    unnamed, size, logs = await _survey(context, before=now - DAY)
    over = await _over(context, logs, size - limits.blobs_max_bytes)
    metrics.CI_BLOB_BYTES.set(size)
    return {"blobs": deleted + over, "unnamed blobs": unnamed, "rows of CI": await _rows(context, now)}


async def _past(context: Context, prefix: str, *, before: int, words: str) -> int:
    """Delete the blobs of fetches that ended before a time."""
    deleted = 0
    while True:
        async with context.store.transaction() as tx:
            keys = await fetches.blobs_ended_before(tx, prefix, before, limit=BATCH)
            await fetches.forget_blobs(tx, keys, words)
        if not keys:
            return deleted
        for key in keys:
            await context.resource(BLOBS).delete(key)
        deleted += len(keys)
        await context.clock.sleep(PAUSE)


async def _survey(context: Context, *, before: int) -> tuple[int, int, list[BlobInfo]]:
    """Delete blobs that no row names, except young ones; returns how many, the size of the rest, and the logs."""
    blobs = context.resource(BLOBS)
    found = [one async for one in blobs.list()]
    size = sum(one.size for one in found)
    deleted = 0
    for start in range(0, len(found), BATCH):
        old = [one for one in found[start : start + BATCH] if one.modified_at < before]
        async with context.store.read() as tx:
            known = await fetches.named_blobs(tx, [one.key for one in old])
        for one in old:
            if one.key not in known:
                await blobs.delete(one.key)
                size -= one.size
                deleted += 1
    return deleted, size, [one for one in found if one.key.startswith(LOG_PREFIX)]


async def _over(context: Context, logs: list[BlobInfo], excess: int) -> int:
    """Delete the oldest logs until what is over the limit is gone; returns how many."""
    chosen = []
    for one in sorted(logs, key=lambda one: one.modified_at):
        if excess <= 0:
            break
        chosen.append(one.key)
        excess -= one.size
    for start in range(0, len(chosen), BATCH):
        keys = chosen[start : start + BATCH]
        async with context.store.transaction() as tx:
            await fetches.forget_blobs(tx, keys, "deleted to keep BLOBS_MAX_BYTES")
        for key in keys:
            await context.resource(BLOBS).delete(key)
        await context.clock.sleep(PAUSE)
    return len(chosen)


async def _rows(context: Context, now: int) -> int:
    """Delete rows that are as old as records get."""
    before = now - context.settings.record_retention_days * DAY
    deleted = 0
    for table, age in (
        (ci_fetch, ci_fetch.c.asked_at < before),
        (ci_listing, ci_listing.c.at < before),
        (ci_artifact, sa.func.coalesce(ci_artifact.c.expires_at, ci_artifact.c.created_at, 0) < before),
        (ci_storage_day, ci_storage_day.c.day < before // DAY),
    ):
        deleted += await delete_rows(context, table, age)
    return deleted
