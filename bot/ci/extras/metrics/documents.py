"""Metrics that scripts of jobs leave, and how a day of one is counted from them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bot.ci.collect.receiving import MIB
from bot.ci.extras.metrics import daily, metric_rows
from bot.ci.extras.metrics.tables import ci_metric, ci_metric_day, ci_metric_trend
from bot.ci.extras.parse.parsed import MetricLine, Parsed
from bot.ci.extras.small_documents import SmallDocument
from bot.queue.sums import Sum

if TYPE_CHECKING:
    from bot.ci.extras.tables import SourceRow
    from bot.context import Context
    from bot.queue.sums import Counted, Place

METRICS = Sum(
    name="metrics",
    tables=(ci_metric_day,),
    group=("repository_id", "metric"),
    count="bot.ci.extras.metrics.documents:count_day",
    after="bot.ci.extras.metrics.metric_rows:judge_metric",
    delay=10,
    pause=10,
)


def time_of(source: SourceRow, line: MetricLine) -> dict[str, int]:
    """Return when a line was emitted: as it says, or when the job began."""
    return {"at": line.ts or source["at"]}


LINES = SmallDocument(
    table=ci_metric,
    called="metrics of jobs",
    answer=Parsed[MetricLine],
    most_written=32 * MIB,
    more=time_of,
    sum=METRICS,
    kept={"days of metrics": ci_metric_day.c.day, "metrics": ci_metric_trend.c.last_day},
)
RECEIVER, prune = LINES.receiver, LINES.prune


async def count_day(context: Context, place: Place) -> Counted:
    """Return the sums of a metric on a day, of trusted runs."""
    repository_id, metric = place.group
    async with context.store.read() as tx:
        lines = await metric_rows.lines_of_day(tx, repository_id, metric, place.day)
    counted = await asyncio.to_thread(daily.sums_of_day, lines)
    return {ci_metric_day: counted}
