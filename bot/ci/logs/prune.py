"""Deleting old verdicts: those of former rulesets with the log, the current ones with the records."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bot.ci.collect.settings import CollectSettings
from bot.ci.logs import failure_rows, rows
from bot.ingest.prune import in_batches

if TYPE_CHECKING:
    from bot.context import Context

BATCH = 200


async def prune(context: Context) -> dict[str, int]:
    """Delete what is past its retention."""
    now, settings = context.clock.now(), context.settings
    logs_before = now - settings.of(CollectSettings).ci_log_retention_days * rows.DAY
    records_before = now - settings.record_retention_days * rows.DAY
    former = partial(rows.old_logs, before=logs_before, limit=BATCH)
    oldest = partial(rows.oldest_logs, before=records_before, limit=BATCH)
    sums = partial(failure_rows.old_sums, before=records_before // rows.DAY, limit=BATCH)
    return {
        "former verdicts": await in_batches(context, former, rows.delete_former),
        "verdicts": await in_batches(context, oldest, rows.delete_logs),
        "days of failures": await in_batches(context, sums, failure_rows.delete_sums),
    }
