"""Deleting old verdicts: those of former rulesets with the log, the current ones with the records."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from bot.ci.collect.settings import CollectSettings
from bot.ci.logs.store import failure_rows, failure_words, log_rows
from bot.ingest.prune import in_batches

if TYPE_CHECKING:
    from bot.context import Context

BATCH = 200


async def prune_logs(context: Context) -> dict[str, int]:
    """Delete what is past its retention."""
    now, settings = context.clock.now(), context.settings
    logs_before = now - settings.of(CollectSettings).ci_log_retention_days * log_rows.DAY
    records_before = now - settings.record_retention_days * log_rows.DAY
    former = partial(log_rows.old_logs, before=logs_before, limit=BATCH)
    oldest = partial(log_rows.oldest_logs, before=records_before, limit=BATCH)
    sums = partial(failure_rows.old_sums, before=records_before // log_rows.DAY, limit=BATCH)
    return {
        "former verdicts": await in_batches(context, former, log_rows.delete_former),
        "verdicts": await in_batches(context, oldest, log_rows.delete_logs),
        "words of failures": await failure_words.forget_words(context),
        "days of failures": await in_batches(context, sums, failure_rows.delete_sums),
    }
