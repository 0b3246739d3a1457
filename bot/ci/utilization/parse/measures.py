"""What goes into the row of a job and into the sums of days: five metrics, over all accelerators of a machine."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, cast

from bot.ci.utilization.parse.histogram import COLUMNS, METRICS, Histogram
from bot.ci.utilization.parse.summary import mean, percentile, weights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bot.ci.utilization.parse.usage_log import UsageLog
    from bot.ci.utilization.tables import Measures

FIELDS = {"gpu": "util_percent", "gpu_mem": "mem_util_percent", "gpu_alloc": "allocated_mem_percent"}


class Measure(NamedTuple):
    """What a metric comes to: its mean over time, a percentile and the most of the records' maxima."""

    avg: float | None
    p90: float
    max: float


class Measured(NamedTuple):
    """A metric of a log."""

    measure: Measure | None
    histogram: Histogram


def measure_log(log: UsageLog) -> dict[str, Measured]:
    """Return every metric; of accelerators, the busiest one of a record counts, and their mean in averages."""
    weight = weights(log.timestamps)[0]
    return {metric: _measured(*_columns(log, metric), weight) for metric in METRICS}


def as_columns(measured: Mapping[str, Measured]) -> Measures:
    """Return the columns of metrics in a job's row, null where nothing was measured."""
    measures = {COLUMNS[metric]: one.measure for metric, one in measured.items()}
    found = {
        f"{name}_{part}": getattr(each, part, None)
        for name, each in measures.items()
        for part in Measure._fields
    }
    return cast("Measures", found)


def _columns(log: UsageLog, metric: str) -> tuple[Sequence[float], Sequence[float], Sequence[float]]:
    """Return the records' maxima, the means of these over accelerators, and the means of means."""
    if metric not in FIELDS:
        most = log.series.get(f"{metric}|max", ())
        return most, most, log.series.get(f"{metric}|avg", ())
    ends = {kind: f"|{FIELDS[metric]}|{kind}" for kind in ("max", "avg")}
    columns = {
        kind: [
            column
            for name, column in log.series.items()
            if name.startswith("gpu_usage|") and name.endswith(end)
        ]
        for kind, end in ends.items()
    }
    return _combine(columns["max"], most=True), _combine(columns["max"]), _combine(columns["avg"])


def _combine(columns: Sequence[Sequence[float]], *, most: bool = False) -> Sequence[float]:
    """Return the mean of every record over some columns, or the most."""
    if len(columns) < 2:
        return columns[0] if columns else ()
    whole = not any(math.isnan(sum(column)) for column in columns)
    if whole and most:
        return list(map(max, *columns))
    if whole:
        many = len(columns)
        return [sum(record) / many for record in zip(*columns, strict=True)]
    known = ([value for value in record if value == value] for record in zip(*columns, strict=True))  # noqa: PLR0124
    if most:
        return [max(record, default=math.nan) for record in known]
    return [sum(record) / len(record) if record else math.nan for record in known]


def _measured(
    most: Sequence[float], means: Sequence[float], averages: Sequence[float], weight: Sequence[float]
) -> Measured:
    points = sorted(value for value in most if value == value)  # noqa: PLR0124 - only NaN is not itself
    if not points:
        return Measured(None, Histogram.of(()))
    measure = Measure(avg=mean(averages, weight), p90=percentile(points, 90), max=points[-1])
    return Measured(measure, Histogram.of(points, means=means))
