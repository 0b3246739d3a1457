"""How long deliveries are kept for sinks that are away: as long as all, and a week; then it is said aloud."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import structlog

from bot.ingest.exports import DELIVERIES
from bot.sinks import metrics
from bot.sinks.store import held_rows

if TYPE_CHECKING:
    from bot.context import Context

DAY = 86_400_000  # milliseconds
LONGER = 7  # days
BATCH = 200

log = structlog.get_logger("bot.sinks")


async def give_up_old(context: Context) -> dict[str, int]:
    """Let go of deliveries that no sink took for too long; returns how many, by name, for the log."""
    keep = context.settings.raw_retention_days + LONGER
    before = context.clock.now() - keep * DAY
    lost: Counter[str] = Counter()
    while True:
        async with context.store.transaction() as tx:
            found = await held_rows.give_up_marks(tx, before=before, limit=BATCH)
        lost.update(sink for sink, _ in found)
        if len(found) < BATCH:
            break
    for sink, count in lost.items():
        metrics.REFUSED.labels(sink, DELIVERIES).inc(count)
        log.error(
            "deliveries that a sink never took are deleted", sink=sink, deliveries=count, after_days=keep
        )
    return {"deliveries_without_copy": lost.total()}
