"""Tables of benchmarks: series, their points, and how each stands in a repository."""

from __future__ import annotations

from typing import Any, TypedDict

import sqlalchemy as sa

from bot.ci.extras.tables import OfRepository, SourceKey, SourceMeasured
from bot.db.rows import Big, Bool, Bytes, Float, Int, Json, Millis, Text, table


class SeriesSubject(TypedDict):
    """What is measured, and on what."""

    benchmark: Text
    model: Text
    metric: Text
    device: Text


class SeriesVariant(TypedDict):
    """In which way."""

    mode: Text
    dtype: Text
    backend: Text  # of the model's compiler, such as inductor
    arch: Text


class SeriesName(SeriesSubject, SeriesVariant):
    """What identifies a series."""


class SeriesRow(SeriesName):
    """A series of measurements, in whichever repository."""

    id: Big
    digest: Bytes  # of the names


benchmark_series = table(
    "benchmark_series",
    SeriesRow,
    sa.UniqueConstraint("digest", name="uq_benchmark_series"),
    sa.Index("ix_benchmark_series_model", "benchmark", "model", "metric"),
    key=("id",),
)
benchmark_series.dialect_options["sqlite"]["autoincrement"] = True  # no id is ever used again


class _Series(TypedDict):
    series_id: Big


class PointValue(TypedDict):
    """What was measured."""

    n: Int
    median: Float | None  # null: there is only a status
    status: Text


class _PointDetails(TypedDict):
    min: Float | None
    max: Float | None
    stdev: Float | None
    target: Float | None
    extra: Json[dict[str, Any]] | None


class Point(_Series, SourceKey, SourceMeasured, PointValue):
    """A point, without its details."""


class PointRow(_Series, SourceKey, SourceMeasured, PointValue, _PointDetails):
    """What one job measured of a series."""


benchmark_point = table(
    "benchmark_point",
    PointRow,
    sa.Index("ix_benchmark_point_series", "repository_id", "series_id", "at"),
    sa.Index("ix_benchmark_point_source", "repository_id", "object_id"),
    sa.Index("ix_benchmark_point_head_sha", "repository_id", "head_sha"),
    sa.Index("ix_benchmark_point_day", "day"),
    key=("series_id", "repository_id", "object_id"),
)


class TrendValue(TypedDict):
    """The newest trusted point of a series, beside those before."""

    at: Millis
    head_sha: Text
    value: Float | None
    status: Text
    usual: Float | None  # median of the ten points before; null: there are too few
    change: Float | None  # share of that
    step_change: Float | None  # of the newest change of level that still holds
    step_at: Millis | None
    step_sha: Text | None  # the first commit of the new level
    worse: Bool  # whether that is a regression


class TrendRow(OfRepository, _Series, TrendValue):
    """How a series stands in a repository."""


benchmark_trend = table(
    "benchmark_trend",
    TrendRow,
    sa.Index("ix_benchmark_trend_at", "repository_id", "at"),
    key=("repository_id", "series_id"),
)


class NamedTrend(SeriesRow, TrendRow):
    """The same with the names of its series."""


class NamedPoint(SeriesName, PointRow):
    """A point with the names of its series."""
