"""The receiver of metrics, and the daily sum of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bot.ci.collect.receiving import MIB, Receiver
from bot.ci.extras import source_rows
from bot.ci.extras.metrics import daily, metric_rows
from bot.ci.extras.metrics.tables import ci_metric, ci_metric_day, ci_metric_trend
from bot.ci.extras.parse.parsed import MetricLine, Parsed
from bot.queue import sums
from bot.queue.sums import Place, Sum

if TYPE_CHECKING:
    from bot.ci.collect.receiving import Fetched
    from bot.ci.extras.metrics.tables import MetricRow
    from bot.ci.extras.tables import SourceRow
    from bot.context import Context
    from bot.db.transaction import Transaction
    from bot.queue.sums import Counted

METRICS = Sum(
    name="metrics",
    tables=(ci_metric_day,),
    group=("repository_id", "metric"),
    count="bot.ci.extras.metrics.receive_metrics:count_day",
    after="bot.ci.extras.metrics.metric_rows:judge_metric",
    delay=10,
    pause=10,
)


async def store_metrics(
    tx: Transaction, context: Context, fetched: Fetched, parsed: Parsed[MetricLine], _blob: str | None
) -> None:
    """Store the metrics of a job, and have their day counted again."""
    stored = await source_rows.store_source(tx, context, fetched, parsed)
    if stored is None:
        return
    before = await metric_rows.metrics_of_source(tx, stored.row["repository_id"], fetched.object_id)
    lines = [_row(stored.row, seq, one) for seq, one in enumerate(parsed.rows)]
    await source_rows.replace_rows(tx, ci_metric, stored.row, lines)
    names = before | {line["metric"] for line in lines}
    places = {Place((one["repository_id"], name), one["day"]) for one in stored.trusted for name in names}
    sums.request(tx, METRICS, sorted(places))


def _row(source: SourceRow, seq: int, line: MetricLine) -> MetricRow:
    return {
        "repository_id": source["repository_id"],
        "object_id": source["object_id"],
        "seq": seq,
        "metric": line.metric,
        "day": source["day"],
        "at": line.ts or source["at"],
        "trusted": source["trusted"],
        "config": source["config"],
        "values": line.values,
        "labels": line.labels,
        "source": line.source,
    }


async def count_day(context: Context, place: Place) -> Counted:
    """Return the sums of a metric on a day, of trusted runs."""
    repository_id, metric = place.group
    async with context.store.read() as tx:
        lines = await metric_rows.lines_of_day(tx, repository_id, metric, place.day)
    counted = await asyncio.to_thread(daily.sums_of_day, lines)
    return {ci_metric_day: counted}


async def prune(context: Context) -> dict[str, int]:
    """Delete lines past the retention of results; the sums go later, with the records."""
    deleted = await source_rows.delete_old(context, {"metrics of jobs": ci_metric})
    first = context.clock.now() // source_rows.DAY - context.settings.record_retention_days
    return deleted | await metric_rows.delete_sums(context, (ci_metric_day, ci_metric_trend), first=first)


RECEIVER = Receiver(store=store_metrics, answer=Parsed[MetricLine], most_written=32 * MIB)
