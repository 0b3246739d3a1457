"""Deleting jobs and sums that are as old as records get; the series go earlier, with the blobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.utilization.tables import utilization_day, utilization_job
from bot.ingest.prune import delete_rows

if TYPE_CHECKING:
    from bot.context import Context

DAY = 86_400_000  # milliseconds


async def prune(context: Context) -> dict[str, int]:
    """Delete what is past the retention of records."""
    first = context.clock.now() // DAY - context.settings.record_retention_days
    sums = utilization_day.c
    return {
        "measured jobs": await delete_rows(context, utilization_job, utilization_job.c.day < first),
        "sums of utilization": await delete_rows(context, utilization_day, sums.day + sums.span - 1 < first),
    }
