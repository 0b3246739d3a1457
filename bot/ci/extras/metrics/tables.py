"""Tables of metrics: the lines of jobs, sums by day and group, and how each value stands."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from bot.ci.extras.tables import OfRepository, SourceKey
from bot.db.rows import Big, Bool, Float, Int, Json, Millis, Text, table


class _Number(TypedDict):
    seq: Int  # of the line


class _Metric(TypedDict):
    metric: Text


class MetricTime(TypedDict):
    """When it was emitted."""

    day: Int  # on which the job began, by GitHub's word
    at: Millis  # when it was emitted, as the script says, or when the job began
    trusted: Bool


class MetricValues(TypedDict):
    """What a line says."""

    config: Text  # of the job
    values: Json[dict[str, float | str | bool | None]]
    labels: Json[dict[str, str]]
    source: Text  # file and function


class MetricLineRow(_Metric, MetricTime, MetricValues):
    """A line, wherever it is from."""


class MetricRow(SourceKey, _Number, MetricLineRow):
    """A line of a job's file."""


ci_metric = table(
    "ci_metric",
    MetricRow,
    sa.Index("ix_ci_metric_day", "repository_id", "metric", "day"),
    sa.Index("ix_ci_metric_of_day", "day"),
    key=("repository_id", "object_id", "seq"),
)


class _Value(TypedDict):
    value_name: Text


class _Group(TypedDict):
    group_key: Text  # empty: all; else a label and its value, `shard=1`


class MetricSums(TypedDict):
    """The numbers of a day."""

    count: Int
    sum: Float
    min: Float
    max: Float
    sample: Json[list[float]]  # at most 64 of them, evenly spaced in ascending order


class MetricGroup(_Value, _Group, MetricSums):
    """A value in a group."""


class MetricDay(MetricGroup):
    """A day of a metric."""

    day: Int


class MetricDayRow(OfRepository, _Metric, MetricDay):
    """A day of a repository's metric, trusted runs alone."""


ci_metric_day = table(
    "ci_metric_day", MetricDayRow, key=("repository_id", "metric", "day", "value_name", "group_key")
)


class MetricTrend(_Metric, _Value):
    """The newest week of a value beside the four before it."""

    last_day: Int
    count: Big  # of the week
    recent: Float  # median of the seven days up to the last
    before: Float | None  # of the 28 before; null: there are too few
    change: Float | None  # share of that
    since_day: Int | None  # the first day of the present level, where it differs by a tenth
    days: Json[list[tuple[int, float]]]  # medians of the newest 35


class MetricTrendRow(OfRepository, MetricTrend):
    """The same of a repository."""


ci_metric_trend = table(
    "ci_metric_trend",
    MetricTrendRow,
    sa.Index("ix_ci_metric_trend_change", "repository_id", "change"),
    key=("repository_id", "metric", "value_name"),
)
