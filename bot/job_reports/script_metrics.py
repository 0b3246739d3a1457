"""Metrics that scripts of CI emit: lines, daily sums, the newest week beside the four before it, and alerts."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from bot.core import metrics
from bot.db.rows import select
from bot.evidence.collect.receivers import MIB
from bot.ingest import repositories
from bot.job_reports.documents import SmallDocument, sources_by_key
from bot.job_reports.feature import JobReportSettings
from bot.job_reports.parse.values import MetricLine, Parsed
from bot.job_reports.tables import (
    MetricDay,
    MetricLineRow,
    MetricRow,
    MetricTrendRow,
    ci_metric,
    ci_metric_day,
    ci_metric_trend,
)
from bot.queue.sums import Sum

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from bot.context import Context
    from bot.core.settings import Settings
    from bot.db.transaction import Transaction
    from bot.job_reports.tables import MetricGroup, MetricSums, MetricTrend, SourceRow
    from bot.queue.sums import CountedSum, SumPlace
    from bot.web.access import Hidden

SAMPLE_MOST = 64  # values kept of a day
RECENT_DAYS, DAYS_BEFORE = 7, 28  # days
LEAST_DAYS = 3  # of the days before; fewer say nothing of what is usual
LEVEL_STEP = 0.1  # change from which the first day of a new level is named
ALL_GROUPS = ""  # the group of everything
LABEL_VALUES = 30  # groups of one label; the others are together
OTHER_VALUES = "other"
JUDGED_DAYS = RECENT_DAYS + DAYS_BEFORE  # days that say how a value stands
LINES_MOST = 200_000  # of a metric on a day
TRENDS_MOST = 1_000
METRIC_LINE, METRIC_DAY, TREND = ci_metric.c, ci_metric_day.c, ci_metric_trend.c
METRIC_SUM = Sum(
    name="metrics",
    tables=(ci_metric_day,),
    group=("repository_id", "metric"),
    count="bot.job_reports.script_metrics:count_metric_day",
    after="bot.job_reports.script_metrics:judge_metric",
    delay=10,
    pause=10,
)
Factors = dict[tuple[str, str], float]  # by metric and value


class WeekComparison(NamedTuple):
    """The newest week of a value beside the four before it."""

    now: float
    usual: float | None
    since: int | None  # a day

    @property
    def change(self) -> float | None:
        """The relative change against the weeks before."""
        return None if not self.usual else (self.now - self.usual) / abs(self.usual)


class MetricLineOfJob(NamedTuple):
    """A line with its job."""

    line: MetricRow
    source: SourceRow


def summarize(values: Sequence[float]) -> MetricSums:
    """Return the sums of a day's numbers, with all of them or a sample."""
    ordered = sorted(values)
    count = len(ordered)
    places = (
        range(count)
        if count <= SAMPLE_MOST
        else (round((at + 0.5) * count / SAMPLE_MOST - 0.5) for at in range(SAMPLE_MOST))
    )
    return {
        "count": count,
        "sum": float(sum(ordered)),
        "min": ordered[0],
        "max": ordered[-1],
        "sample": [ordered[at] for at in places],
    }


def quantile(days: Iterable[MetricSums], share: float) -> float:
    """Return the value that a share of all values of some days does not exceed.

    >>> quantile([summarize([1, 2, 3]), summarize([10])], 0.5)
    2
    """
    weighed = sorted((value, day["count"] / len(day["sample"])) for day in days for value in day["sample"])
    totals = list(accumulate(weight for _, weight in weighed))
    wanted = totals[-1] * share
    return next(value for (value, _), total in zip(weighed, totals, strict=True) if total >= wanted - 1e-9)


def sums_of_day(lines: Iterable[MetricLineRow]) -> list[MetricGroup]:
    """Return the sums of a day's lines, for each value in each group."""
    values_of: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    known: defaultdict[str, set[str]] = defaultdict(set)
    for line in lines:
        groups = [ALL_GROUPS, *_groups_of_line(line, known)]
        for name, value in line["values"].items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                for group in groups:
                    values_of[name, group].append(value)
    return [
        {"value_name": name, "group_key": group, **summarize(values)}
        for (name, group), values in sorted(values_of.items())
    ]


def compare_weeks(days: Mapping[int, MetricSums]) -> WeekComparison:
    """Compare the newest week with the four before it, counted back from the newest day with numbers."""
    last = max(days)
    recent = {day: sums for day, sums in days.items() if last - RECENT_DAYS < day <= last}
    earlier = [
        sums for day, sums in days.items() if last - RECENT_DAYS - DAYS_BEFORE < day <= last - RECENT_DAYS
    ]
    now = quantile(recent.values(), 0.5)
    if len(earlier) < LEAST_DAYS:
        return WeekComparison(now, None, None)
    before = quantile(earlier, 0.5)
    return WeekComparison(now, before, _level_since(recent, now, before))


def trends_of_days(metric: str, rows: Iterable[MetricDay]) -> list[MetricTrend]:
    """Return the trend of each value of a metric, from its days of all groups together."""
    by_value: defaultdict[str, dict[int, MetricSums]] = defaultdict(dict)
    for row in rows:
        by_value[row["value_name"]][row["day"]] = row
    return [_trend_of_value(metric, name, by_value[name]) for name in sorted(by_value)]


async def lines_of_source(tx: Transaction, source: SourceRow) -> list[MetricRow]:
    """Return the lines of a file."""
    query = select(MetricRow, ci_metric).where(
        METRIC_LINE.repository_id == source["repository_id"], METRIC_LINE.object_id == source["object_id"]
    )
    return await tx.fetch(query.order_by(METRIC_LINE.seq))


async def lines_of_day(tx: Transaction, repository_id: int, metric: str, day: int) -> list[MetricLineRow]:
    """Return the lines of a metric on a day, of trusted runs."""
    query = select(MetricLineRow, ci_metric).where(
        METRIC_LINE.repository_id == repository_id,
        METRIC_LINE.metric == metric,
        METRIC_LINE.day == day,
        METRIC_LINE.trusted,
    )
    return await tx.fetch(query.order_by(METRIC_LINE.object_id, METRIC_LINE.seq).limit(LINES_MOST))


async def judge_metric(tx: Transaction, place: SumPlace) -> None:
    """Judge the values of a metric, once one of its days was counted."""
    repository_id, metric = place.group
    of_metric = (
        METRIC_DAY.repository_id == repository_id,
        METRIC_DAY.metric == metric,
        METRIC_DAY.group_key == ALL_GROUPS,
    )
    last = (await tx.run(sa.select(sa.func.max(METRIC_DAY.day)).where(*of_metric))).scalar()
    await tx.run(
        sa.delete(ci_metric_trend).where(TREND.repository_id == repository_id, TREND.metric == metric)
    )
    if last is None:
        return
    rows = await tx.fetch(
        select(MetricDay, ci_metric_day).where(*of_metric, METRIC_DAY.day > last - JUDGED_DAYS)
    )
    trend_rows = [{"repository_id": repository_id, **trend} for trend in trends_of_days(metric, rows)]
    await tx.run(sa.insert(ci_metric_trend), trend_rows)


async def newest_trends(tx: Transaction, owners: Collection[int], *, since_day: int) -> list[MetricTrendRow]:
    """Return the trends of values emitted lately; those that changed most first."""
    query = select(MetricTrendRow, ci_metric_trend).where(
        TREND.repository_id.in_(sorted(owners)), TREND.last_day >= since_day
    )
    order = (sa.func.abs(sa.func.coalesce(TREND.change, 0.0)).desc(), TREND.metric, TREND.value_name)
    return await tx.fetch(query.order_by(*order).limit(TRENDS_MOST))


async def trends_of_values(
    tx: Transaction, owners: Collection[int], names: Collection[tuple[str, str]]
) -> list[MetricTrendRow]:
    """Return the trends of some values, by metric and value."""
    if not names or not owners:
        return []
    query = select(MetricTrendRow, ci_metric_trend).where(
        TREND.repository_id.in_(sorted(owners)), tx.among([TREND.metric, TREND.value_name], sorted(names))
    )
    return await tx.fetch(query)


async def days_of(
    tx: Transaction, owners: Collection[int], metric: str, *, first: int, group: str | None
) -> list[MetricDay]:
    """Return the days of a metric from a day on: of all groups together, or of a label's values."""
    query = select(MetricDay, ci_metric_day).where(
        METRIC_DAY.repository_id.in_(sorted(owners)), METRIC_DAY.metric == metric, METRIC_DAY.day >= first
    )
    if group is None:
        query = query.where(METRIC_DAY.group_key == ALL_GROUPS)
    else:
        query = query.where(METRIC_DAY.group_key.startswith(f"{group}=", autoescape=True))
    return await tx.fetch(query.order_by(METRIC_DAY.day))


async def groups_of(tx: Transaction, owners: Collection[int], metric: str, *, first: int) -> list[str]:
    """Return the labels by which a metric can be split."""
    query = sa.select(METRIC_DAY.group_key).where(
        METRIC_DAY.repository_id.in_(sorted(owners)),
        METRIC_DAY.metric == metric,
        METRIC_DAY.day >= first,
        METRIC_DAY.group_key != ALL_GROUPS,
    )
    keys = (await tx.run(query.distinct())).scalars()
    return sorted({key.partition("=")[0] for key in keys})


async def newest_lines(
    tx: Transaction, owners: Collection[int], metric: str, *, limit: int, day: int | None = None
) -> list[MetricLineOfJob]:
    """Return the newest lines of a metric, or the first ones of a day, with their jobs."""
    query = select(MetricRow, ci_metric).where(
        METRIC_LINE.repository_id.in_(sorted(owners)), METRIC_LINE.metric == metric
    )
    if day is None:
        query = query.order_by(
            METRIC_LINE.day.desc(), METRIC_LINE.at.desc(), METRIC_LINE.object_id, METRIC_LINE.seq
        )
    else:
        query = query.where(METRIC_LINE.day == day, METRIC_LINE.trusted).order_by(
            METRIC_LINE.at, METRIC_LINE.object_id, METRIC_LINE.seq
        )
    lines = await tx.fetch(query.limit(limit))
    known = await sources_by_key(tx, {(line["repository_id"], line["object_id"]) for line in lines})
    keyed = (((line["repository_id"], line["object_id"]), line) for line in lines)
    return [MetricLineOfJob(line, known[key]) for key, line in keyed if key in known]


def time_of(source: SourceRow, line: MetricLine) -> dict[str, int]:
    """Return when a line was emitted, by its own word or when the job began."""
    return {"at": line.ts or source["at"]}


METRIC_DOCUMENT = SmallDocument(
    table=ci_metric,
    called="metrics of jobs",
    answer=Parsed[MetricLine],
    most_written=32 * MIB,
    more=time_of,
    sum=METRIC_SUM,
    kept={"days of metrics": ci_metric_day.c.day, "metrics": ci_metric_trend.c.last_day},
)
METRIC_RECEIVER, prune_metrics = METRIC_DOCUMENT.receiver, METRIC_DOCUMENT.prune


async def count_metric_day(context: Context, place: SumPlace) -> CountedSum:
    """Return the sums of a metric on a day, of trusted runs."""
    repository_id, metric = place.group
    async with context.store.read() as tx:
        lines = await lines_of_day(tx, repository_id, metric, place.day)
    counted = await asyncio.to_thread(sums_of_day, lines)
    return {ci_metric_day: counted}


def alert_factors(settings: Settings) -> Factors:
    """Return the factors that the settings name."""
    alerts = settings.of(JobReportSettings).ci_metric_alerts
    return {(metric, value): factor for metric, value, factor in alerts}


def is_regressed(trend: MetricTrend, known: Mapping[tuple[str, str], float]) -> bool:
    """Whether a value is worse than its factor allows."""
    factor = known.get((trend["metric"], trend["value_name"]))
    if factor is None or not trend["before"]:
        return False
    allowed = trend["before"] * factor
    return trend["recent"] > allowed if factor > 1 else trend["recent"] < allowed


async def measure_alerts(tx: Transaction, settings: Settings, hidden: Hidden) -> Callable[[], None]:
    """Return a function that shows which metrics got worse."""
    known, regressed = alert_factors(settings), dict[tuple[str, str, str], bool]()
    for repo in settings.upstream_repo if known else ():
        owners = set() if hidden.has(repo) else await repositories.read_ids(tx, repo)
        for trend in await trends_of_values(tx, owners, known):
            if not hidden.has(repo, trend["repository_id"]):
                regressed[repo, trend["metric"], trend["value_name"]] = is_regressed(trend, known)
    return partial(metrics.show_regressed, regressed)


def _groups_of_line(line: MetricLineRow, known: defaultdict[str, set[str]]) -> Iterable[str]:
    """Yield the groups of a line: its labels, and the configuration of its job."""
    for label, value in {**line["labels"], "config": line["config"]}.items():
        if not value:
            continue
        if value not in known[label] and len(known[label]) == LABEL_VALUES:
            yield f"{label}={OTHER_VALUES}"
            continue
        known[label].add(value)
        yield f"{label}={value}"


def _level_since(recent: Mapping[int, MetricSums], now: float, before: float) -> int | None:
    """Return the first day of the present level, if that differs."""
    if not before or abs(now - before) < LEVEL_STEP * abs(before):
        return None
    since = None
    for day in sorted(recent, reverse=True):
        by = (quantile([recent[day]], 0.5) - before) / abs(before)
        if abs(by) < LEVEL_STEP or by * (now - before) < 0:
            break
        since = day
    return since


def _trend_of_value(metric: str, name: str, days: Mapping[int, MetricSums]) -> MetricTrend:
    week, last = compare_weeks(days), max(days)
    shown = sorted(day for day in days if day > last - RECENT_DAYS - DAYS_BEFORE)
    return {
        "metric": metric,
        "value_name": name,
        "last_day": last,
        "count": sum(sums["count"] for day, sums in days.items() if day > last - RECENT_DAYS),
        "recent": week.now,
        "before": week.usual,
        "change": week.change,
        "since_day": week.since,
        "days": [(day, quantile([days[day]], 0.5)) for day in shown],
    }
