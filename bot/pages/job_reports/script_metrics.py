"""GET /{owner}/{repo}/custom and /api/ci/custom/{owner}/{repo}: metrics of CI's own scripts, and how they change."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

from msgspec import Meta

from bot.job_reports import script_metrics
from bot.job_reports.script_metrics import METRIC_SUM
from bot.job_reports.tables import MetricDay, MetricTrend
from bot.pages.job_reports import day_window
from bot.pages.job_reports.day_window import read_window, repository_view
from bot.web import parameters as declare
from bot.web.answers import Answer, RowAnswer, fill_struct
from bot.web.charts import sparkline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.job_reports.script_metrics import Factors, MetricLineOfJob
    from bot.job_reports.tables import MetricTrendRow
    from bot.pages.job_reports.day_window import DayWindow
    from bot.web.charts import Chart
    from bot.web.parameters import Query

TRENDS_SHOWN = 200  # lines of the list
LINES_SHOWN = 50  # of the table of runs
CURVES = 6  # lines of a chart that is split
METRIC = declare.text("metric", "one metric; without it, all are listed", most=80)
VALUE = declare.text("value", "one of its values; without it, its first", most=80)
GROUP = declare.text("group", "a label by which it is split, or config: the configuration of jobs", most=80)


class MetricChange(
    RowAnswer, row=MetricTrend, without=("last_day", "since_day", "days"), frozen=True, kw_only=True
):
    """How a value stands: the median of its newest week beside that of the four before."""

    change: Annotated[float | None, Meta(description="share of `before`; null: there are too few days")]
    regressed: Annotated[bool, Meta(description="whether CI_METRIC_ALERTS names it, and it is worse")]
    last: Annotated[str, Meta(description="the newest day it was emitted on")]
    since: Annotated[str | None, Meta(description="the first day of the present level")]


class MetricDayAnswer(RowAnswer, row=MetricDay, without=("day", "sample"), frozen=True, kw_only=True):
    """A day of the metric, in trusted runs."""

    date: str
    group_key: Annotated[str, Meta(description="empty: all; else the label and its value")]
    median: float
    p90: float


class CustomMetrics(Answer, frozen=True, kw_only=True):
    """Metrics of CI's own scripts"""

    metrics: Annotated[list[MetricChange], Meta(description="those that are worse first, then by change")]
    days: Annotated[list[MetricDayAnswer], Meta(description="of the chosen metric")]


@dataclass(frozen=True, kw_only=True)
class RepositoryMetrics:
    """Metrics of a repository, or one of them."""

    window: DayWindow
    metric: str
    value: str
    group: str
    trends: list[MetricTrendRow]
    factors: Factors
    days: list[MetricDay]
    groups: list[str]
    lines: list[MetricLineOfJob]
    began: list[MetricLineOfJob]  # of the first day of the present level

    @property
    def chosen(self) -> MetricTrendRow | None:
        """How the chosen value stands."""
        return next((trend for trend in self.trends if trend["value_name"] == self.value), None)


async def read_metrics(query: Query) -> RepositoryMetrics:
    """Read the metrics of a repository."""
    tx, metric = query.tx, query[METRIC]
    window = await read_window(query, METRIC_SUM)
    owners, first = window.owners, window.first
    trends = await script_metrics.newest_trends(tx, owners, since_day=first)
    known = script_metrics.alert_factors(query.settings)
    trends.sort(key=lambda trend: not script_metrics.is_regressed(trend, known))
    mine = [trend for trend in trends if trend["metric"] == metric] if metric else trends
    values = [trend["value_name"] for trend in mine] if metric else []
    chosen = query[VALUE] if query[VALUE] in values else next(iter(values), "")
    since = next((trend["since_day"] for trend in mine if metric and trend["value_name"] == chosen), None)
    detailed = bool(metric) and query.for_page
    group = query[GROUP] or None
    newest = partial(script_metrics.newest_lines, tx, owners, metric)
    return RepositoryMetrics(
        window=window,
        metric=metric,
        value=chosen,
        group=query[GROUP],
        trends=mine,
        factors=known,
        days=await script_metrics.days_of(tx, owners, metric, first=first, group=group) if metric else [],
        groups=await script_metrics.groups_of(tx, owners, metric, first=first) if detailed else [],
        lines=await newest(limit=LINES_SHOWN) if detailed else [],
        began=await newest(limit=1, day=since) if detailed and since is not None else [],
    )


def page_values(result: RepositoryMetrics) -> dict[str, Any]:
    """Return what the page shows."""
    return result.window.page | {
        "result": result,
        "listed": result.trends[:TRENDS_SHOWN],
        "more": max(len(result.trends) - TRENDS_SHOWN, 0),
        "chosen": result.chosen if result.metric else None,
        "regressed": lambda trend: script_metrics.is_regressed(trend, result.factors),
        "spark": _spark,
        "charts": [_chart(result)] if result.metric else [],
        "link": lambda **changed: f"/{result.window.repo}/custom?{_query(result, changed)}",
        "rest": f"&{_query(result, {'days': ''})}" if result.metric else "",
    }


def json_answer(result: RepositoryMetrics) -> CustomMetrics:
    """Return the JSON of the metrics."""
    return CustomMetrics(
        metrics=[
            fill_struct(
                MetricChange,
                trend,
                regressed=script_metrics.is_regressed(trend, result.factors),
                last=day_window.iso_day(trend["last_day"]),
                since=None if trend["since_day"] is None else day_window.iso_day(trend["since_day"]),
            )
            for trend in result.trends
        ],
        days=[
            fill_struct(
                MetricDayAnswer,
                row,
                date=day_window.iso_day(row["day"]),
                median=script_metrics.quantile([row], 0.5),
                p90=script_metrics.quantile([row], 0.9),
            )
            for row in result.days
        ],
    )


VIEW = repository_view(
    "custom",
    read=read_metrics,
    parameters=(METRIC, VALUE, GROUP),
    template="custom_metrics.html",
    values=page_values,
    answer=json_answer,
    content=CustomMetrics,
    name="customMetrics",
    summary="Metrics of CI's own scripts, and how they change",
    link=lambda result: {
        "repo": result.window.repo,
        "days": result.window.size,
        "metric": result.metric,
        "value": result.value,
        "group": result.group,
    },
)


def _query(result: RepositoryMetrics, changed: dict[str, object]) -> str:
    now = {"days": result.window.size, "metric": result.metric, "value": result.value, "group": result.group}
    return urlencode({name: value for name, value in (now | changed).items() if value})


def _spark(trend: MetricTrend) -> str:
    """Return the line of a value's newest medians, the largest at the top."""
    known = dict(trend["days"])
    top = max((abs(value) for value in known.values()), default=0) or 1
    last = trend["last_day"]
    window = range(last - script_metrics.RECENT_DAYS - script_metrics.DAYS_BEFORE + 1, last + 1)
    return sparkline([max(known[day], 0) / top if day in known else None for day in window])


def _chart(result: RepositoryMetrics) -> Chart:
    by_group: defaultdict[str, defaultdict[int, list[MetricDay]]]
    by_group = defaultdict(lambda: defaultdict(list))
    for row in result.days:
        if row["value_name"] == result.value:
            by_group[row["group_key"]][row["day"]].append(row)
    called = f"{result.metric} {result.value}"
    draw = partial(result.window.chart, links=None if result.window.has_grid else _commits(result))
    if not result.group:
        shares = (("median", 0.5), ("p90", 0.9))
        lines = [(name, _quantiles(by_group[script_metrics.ALL_GROUPS], share)) for name, share in shares]
        return draw(f"{called}, trusted runs", lines)
    most = sorted(by_group, key=lambda group: -sum(map(len, by_group[group].values())))[:CURVES]
    lines = [(key.partition("=")[2], _quantiles(by_group[key], 0.5)) for key in sorted(most)]
    return draw(f"{called}, medians by {result.group}", lines)


def _commits(result: RepositoryMetrics) -> dict[int, str]:
    """Return the page of the first commit of each of the newest days with the metric."""
    page = f"/{result.window.repo}/commit"
    return {
        line.line["day"]: f"{page}/{line.source['head_sha']}" for line in result.lines if line.line["trusted"]
    }


def _quantiles(days: Mapping[int, list[MetricDay]], share: float) -> dict[int, float]:
    return {day: script_metrics.quantile(rows, share) for day, rows in days.items()}
