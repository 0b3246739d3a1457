"""GET /{owner}/{repo}/custom and /api/ci/custom/{owner}/{repo}: metrics of CI's own scripts, and how they change."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

from msgspec import Meta

from bot.ci.extras import shown_days, shown_repositories
from bot.ci.extras.metrics import alerts, daily, metric_rows
from bot.ci.extras.metrics.receive_metrics import METRICS
from bot.ci.extras.metrics.tables import MetricDay, MetricTrend
from bot.queue import sums
from bot.web import html, parameters
from bot.web import operations as op
from bot.web import view_parameters as declare
from bot.web.answers import Answer, fill
from bot.web.charts import chart, sparkline
from bot.web.refusals import NOT_FOUND, UNKNOWN_REPOSITORY
from bot.web.row_answers import RowAnswer
from bot.web.view import Json, Page, View
from bot.web.view_parameters import REPO, REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from bot.ci.extras.metrics.alerts import Factors
    from bot.ci.extras.metrics.metric_rows import RunLine
    from bot.ci.extras.metrics.tables import MetricTrendRow
    from bot.web.asked import Asked
    from bot.web.charts import Chart

SHOWN = 200  # lines of the list
LINES = 50  # of the table of runs
CURVES = 6  # lines of a chart that is split
DAYS = declare.days()
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
class Found:
    """Metrics of a repository, or one of them."""

    repo: str
    window: int
    first: int
    last: int
    metric: str
    value: str
    group: str
    trends: list[MetricTrendRow]
    factors: Factors
    days: list[MetricDay]
    groups: list[str]
    lines: list[RunLine]
    began: list[RunLine]  # of the first day of the present level
    counted_until: int | None

    @property
    def chosen(self) -> MetricTrendRow | None:
        """How the chosen value stands."""
        return next((one for one in self.trends if one["value_name"] == self.value), None)


async def read_metrics(asked: Asked) -> Found:
    """Read the metrics of a repository."""
    tx, window, metric = asked.tx, asked[DAYS], asked[METRIC]
    owners = await shown_repositories.owners(asked)
    last = tx.now // sums.DAY
    first = last - window + 1
    trends = await metric_rows.trends(tx, owners, since_day=first)
    known = alerts.factors(asked.settings)
    trends.sort(key=lambda one: not alerts.is_regressed(one, known))
    mine = [one for one in trends if one["metric"] == metric] if metric else trends
    values = [one["value_name"] for one in mine] if metric else []
    chosen = asked[VALUE] if asked[VALUE] in values else next(iter(values), "")
    since = next((one["since_day"] for one in mine if metric and one["value_name"] == chosen), None)
    detailed = bool(metric) and asked.for_page
    group = asked[GROUP] or None
    return Found(
        repo=asked[REPO],
        window=window,
        first=first,
        last=last,
        metric=metric,
        value=chosen,
        group=asked[GROUP],
        trends=mine,
        factors=known,
        days=await metric_rows.days_of(tx, owners, metric, first=first, group=group) if metric else [],
        groups=await metric_rows.groups_of(tx, owners, metric, first=first) if detailed else [],
        lines=await metric_rows.newest_lines(tx, owners, metric, limit=LINES) if detailed else [],
        began=await metric_rows.newest_lines(tx, owners, metric, limit=1, day=since)
        if detailed and since is not None
        else [],
        counted_until=await sums.counted_until(tx, METRICS, owners, first=first),
    )


def show(found: Found) -> dict[str, Any]:
    """Return what the page shows."""
    return {
        "repo": found.repo,
        "found": found,
        "windows": parameters.windows(found.window),
        "listed": found.trends[:SHOWN],
        "more": max(len(found.trends) - SHOWN, 0),
        "chosen": found.chosen if found.metric else None,
        "regressed": lambda one: alerts.is_regressed(one, found.factors),
        "spark": _spark,
        "charts": _charts(found) if found.metric else [],
        "link": lambda **asked: f"/{found.repo}/custom?{_query(found, asked)}",
        "rest": f"&{_query(found, {'days': ''})}" if found.metric else "",
        "counted_until": found.counted_until,
    }


def _query(found: Found, changed: dict[str, object]) -> str:
    now = {"days": found.window, "metric": found.metric, "value": found.value, "group": found.group}
    return urlencode({name: value for name, value in (now | changed).items() if value})


def _spark(trend: MetricTrend) -> str:
    """Return the path of a value's newest medians, its largest at the top."""
    known = dict(trend["days"])
    top = max((abs(value) for value in known.values()), default=0) or 1
    last = trend["last_day"]
    window = range(last - daily.RECENT - daily.BEFORE + 1, last + 1)
    return sparkline([max(known[day], 0) / top if day in known else None for day in window])


def _charts(found: Found) -> list[Chart]:
    labels, window = shown_days.labels(found.first, found.last), range(found.first, found.last + 1)
    by_group: defaultdict[str, defaultdict[int, list[MetricDay]]]
    by_group = defaultdict(lambda: defaultdict(list))
    for row in found.days:
        if row["value_name"] == found.value:
            by_group[row["group_key"]][row["day"]].append(row)
    if not found.group:
        days = by_group[daily.ALL]
        lines = [(name, _line(days, window, share)) for name, share in (("median", 0.5), ("p90", 0.9))]
    else:
        most = sorted(by_group, key=lambda one: -sum(map(len, by_group[one].values())))[:CURVES]
        lines = [(key.partition("=")[2], _line(by_group[key], window, 0.5)) for key in sorted(most)]
    title = f"{found.metric} {found.value}, " + (
        f"medians by {found.group}" if found.group else "trusted runs"
    )
    return [chart(title, labels, lines, show=shown_days.number)]


def _line(days: defaultdict[int, list[MetricDay]], window: range, share: float) -> list[float | None]:
    return [daily.quantile(days[day], share) if day in days else None for day in window]


def answer(found: Found) -> CustomMetrics:
    """Return the JSON of the metrics."""
    return CustomMetrics(
        metrics=[
            fill(
                MetricChange,
                one,
                regressed=alerts.is_regressed(one, found.factors),
                last=shown_days.iso(one["last_day"]),
                since=None if one["since_day"] is None else shown_days.iso(one["since_day"]),
            )
            for one in found.trends
        ],
        days=[
            fill(
                MetricDayAnswer,
                one,
                date=shown_days.iso(one["day"]),
                median=daily.quantile([one], 0.5),
                p90=daily.quantile([one], 0.9),
            )
            for one in found.days
        ],
    )


def _json_link(found: Found) -> dict[str, object]:
    asked: Sequence[tuple[str, object]] = (
        ("metric", found.metric),
        ("value", found.value),
        ("group", found.group),
    )
    return {"repo": found.repo, "days": found.window, **dict(asked)}


VIEW = View(
    read=read_metrics,
    parameters=(REPO, DAYS, METRIC, VALUE, GROUP),
    page=Page(path=f"{REPOSITORY}/custom", template="custom_metrics.html", values=show),
    json=Json(
        path="/api/ci/custom/{owner}/{repo}",
        answer=answer,
        content=CustomMetrics,
        name="customMetrics",
        summary="Metrics of CI's own scripts, and how they change",
        topic=op.CI,
        refusals=(NOT_FOUND, UNKNOWN_REPOSITORY),
        link=_json_link,
    ),
)
VIEWS = (VIEW,)


def setup(app: web.Application) -> None:
    """Add what the template uses."""
    html.add_names(
        app, filters={"amount": shown_days.number, "change": shown_days.change, "date": shown_days.iso}
    )
