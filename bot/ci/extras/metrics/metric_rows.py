"""Statements about metrics: lines, days, and how values stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.ci.extras.metrics import daily
from bot.ci.extras.metrics.tables import (
    MetricDay,
    MetricLineRow,
    MetricRow,
    MetricTrendRow,
    ci_metric,
    ci_metric_day,
    ci_metric_trend,
)
from bot.ci.extras.source_rows import sources_by_key
from bot.db.rows import select

if TYPE_CHECKING:
    from collections.abc import Collection

    from bot.ci.extras.tables import SourceRow
    from bot.db.transaction import Transaction
    from bot.queue.sums import Place

JUDGED = daily.RECENT + daily.BEFORE  # days that say how a value stands
LINES_MOST = 200_000  # of a metric on a day
TRENDS_MOST = 1_000
M, D, T = ci_metric.c, ci_metric_day.c, ci_metric_trend.c


class RunLine(NamedTuple):
    """A line with the job it is of."""

    line: MetricRow
    source: SourceRow


async def lines_of_source(tx: Transaction, source: SourceRow) -> list[MetricRow]:
    """Return the lines of a file."""
    query = select(MetricRow, ci_metric).where(
        M.repository_id == source["repository_id"], M.object_id == source["object_id"]
    )
    return await tx.fetch(query.order_by(M.seq))


async def lines_of_day(tx: Transaction, repository_id: int, metric: str, day: int) -> list[MetricLineRow]:
    """Return the lines of a metric on a day, of trusted runs."""
    query = select(MetricLineRow, ci_metric).where(
        M.repository_id == repository_id, M.metric == metric, M.day == day, M.trusted
    )
    return await tx.fetch(query.order_by(M.object_id, M.seq).limit(LINES_MOST))


async def judge_metric(tx: Transaction, place: Place) -> None:
    """Store how the values of a metric stand, once one of its days was counted."""
    repository_id, metric = place.group
    of_metric = (D.repository_id == repository_id, D.metric == metric, D.group_key == daily.ALL)
    last = (await tx.run(sa.select(sa.func.max(D.day)).where(*of_metric))).scalar()
    await tx.run(sa.delete(ci_metric_trend).where(T.repository_id == repository_id, T.metric == metric))
    if last is None:
        return
    rows = await tx.fetch(select(MetricDay, ci_metric_day).where(*of_metric, D.day > last - JUDGED))
    found = [{"repository_id": repository_id, **one} for one in daily.trends(metric, rows)]
    await tx.run(sa.insert(ci_metric_trend), found)


async def trends(tx: Transaction, owners: Collection[int], *, since_day: int) -> list[MetricTrendRow]:
    """Return how values stand that were emitted lately, those that changed most first."""
    query = select(MetricTrendRow, ci_metric_trend).where(
        T.repository_id.in_(sorted(owners)), T.last_day >= since_day
    )
    order = (sa.func.abs(sa.func.coalesce(T.change, 0.0)).desc(), T.metric, T.value_name)
    return await tx.fetch(query.order_by(*order).limit(TRENDS_MOST))


async def trends_of(
    tx: Transaction, owners: Collection[int], names: Collection[tuple[str, str]]
) -> list[MetricTrendRow]:
    """Return how some values stand, by metric and value."""
    if not names or not owners:
        return []
    query = select(MetricTrendRow, ci_metric_trend).where(
        T.repository_id.in_(sorted(owners)), tx.among([T.metric, T.value_name], sorted(names))
    )
    return await tx.fetch(query)


async def days_of(
    tx: Transaction, owners: Collection[int], metric: str, *, first: int, group: str | None
) -> list[MetricDay]:
    """Return the days of a metric from one on: of all together, or of the values of a label."""
    query = select(MetricDay, ci_metric_day).where(
        D.repository_id.in_(sorted(owners)), D.metric == metric, D.day >= first
    )
    if group is None:
        query = query.where(D.group_key == daily.ALL)
    else:
        query = query.where(D.group_key.startswith(f"{group}=", autoescape=True))
    return await tx.fetch(query.order_by(D.day))


async def groups_of(tx: Transaction, owners: Collection[int], metric: str, *, first: int) -> list[str]:
    """Return the labels by which a metric can be split."""
    query = sa.select(D.group_key).where(
        D.repository_id.in_(sorted(owners)), D.metric == metric, D.day >= first, D.group_key != daily.ALL
    )
    found = (await tx.run(query.distinct())).scalars()
    return sorted({key.partition("=")[0] for key in found})


async def newest_lines(
    tx: Transaction, owners: Collection[int], metric: str, *, limit: int, day: int | None = None
) -> list[RunLine]:
    """Return the newest lines of a metric with their jobs, or the first ones of a day."""
    query = select(MetricRow, ci_metric).where(M.repository_id.in_(sorted(owners)), M.metric == metric)
    if day is None:
        query = query.order_by(M.day.desc(), M.at.desc(), M.object_id, M.seq)
    else:
        query = query.where(M.day == day, M.trusted).order_by(M.at, M.object_id, M.seq)
    lines = await tx.fetch(query.limit(limit))
    known = await sources_by_key(tx, {(one["repository_id"], one["object_id"]) for one in lines})
    keyed = (((one["repository_id"], one["object_id"]), one) for one in lines)
    return [RunLine(one, known[key]) for key, one in keyed if key in known]
