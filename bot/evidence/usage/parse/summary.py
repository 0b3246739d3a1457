"""What the numbers of a log come to, by series and over time: for pages, a job's row and daily sums.

Sums keep percents in 101 bins, which add up exactly over days, jobs and repositories.
"""

from __future__ import annotations

import math
import statistics
import struct
import zlib
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple, Self, cast

import msgspec

from bot.evidence.usage.parse.columns import unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.evidence.usage.parse.usage_log import UsageLog
    from bot.evidence.usage.tables import Durations, Measures

SPIKE = 90  # percent
SATURATED = 95
IDLE = 5
IDLE_SECONDS = 60  # a shorter run is a pause
HOLE = 3  # median gaps; from there on nothing is known
CPU, MEMORY = "cpu|max", "memory|max"
BINS = 101  # bin b holds what rounds down to b; the last one holds 100 and everything above
METRIC_COLUMNS = {"cpu": "cpu", "memory": "mem", "gpu": "gpu", "gpu_mem": "gpu_bw", "gpu_alloc": "gpu_alloc"}
METRICS = tuple(METRIC_COLUMNS)  # in this order in packed histograms; their columns begin with other names
BIN_BYTES = 8  # bytes of a bin: no sum of any number of jobs overflows it
ACCELERATOR_FIELDS = {
    "gpu": "util_percent",
    "gpu_mem": "mem_util_percent",
    "gpu_alloc": "allocated_mem_percent",
}


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of one series; percentiles are points of it, never values in between."""

    avg: float
    p10: float
    p50: float
    p90: float
    max: float
    spike_share: float | None  # of points of at least 90 percent; None for what is not in percent


@dataclass(frozen=True, kw_only=True)
class Times:
    """What a log covers, and means weighted by time."""

    durations: Durations
    cpu_avg: float | None
    memory_avg: float | None
    gpus: int  # that were seen
    idle_share: float | None


class MemoryPeak(msgspec.Struct, frozen=True, kw_only=True):
    """The record with the most memory in use."""

    at: int
    percent: float
    left: float  # percent up to all of it
    commands: list[str]  # that ran then
    oom_risk: bool


class Histogram(NamedTuple):
    """Counts by bin, and the sum of the values in hundredths of a percent, from which the mean is exact."""

    bins: tuple[int, ...]
    total: int

    @classmethod
    def of(cls, values: Iterable[float], *, means: Iterable[float] | None = None) -> Self:
        """Count values in a histogram, without NaN; `means` are summed instead where they differ."""
        known = [value for value in values if value == value]  # noqa: PLR0124 - only NaN is not itself
        counts = Counter(map(int, known))
        bins = [counts.get(number, 0) for number in range(BINS - 1)]
        bins.append(len(known) - sum(bins))
        summed = known if means is None else (value for value in means if value == value)  # noqa: PLR0124
        return cls(tuple(bins), sum(round(value * 100) for value in summed))

    @property
    def points(self) -> int:
        """Return how many values it holds."""
        return sum(self.bins)

    @property
    def mean(self) -> float | None:
        """Return the mean of the values."""
        return self.total / 100 / self.points if self.points else None

    def quantiles(self, *shares: float) -> list[int | None]:
        """Return for each share the smallest bin at which it is reached; at most one point too low."""
        reached = list(accumulate(self.bins))
        count = reached[-1]
        if not count:
            return [None] * len(shares)
        # 0.07 * 100 is a little more than 7
        return [bisect_left(reached, max(1, math.ceil(share * count - 1e-9))) for share in shares]


class Measure(NamedTuple):
    """What a metric comes to: its mean over time, a percentile and the most of the records' maxima."""

    avg: float | None
    p90: float
    max: float


class Measured(NamedTuple):
    """A metric of a log."""

    measure: Measure | None
    histogram: Histogram


def summarize_log(log: UsageLog, *, ends: str = "") -> dict[str, Summary]:
    """Summarize every series that has points and an id with this end."""
    summaries = {
        series: summarize_series(column, unit(series))
        for series, column in log.series.items()
        if series.endswith(ends)
    }
    return {series: summary for series, summary in summaries.items() if summary}


def summarize_series(column: Iterable[float], counted_in: str = "percent") -> Summary | None:
    """Summarize points; NaN is no point."""
    points = sorted(value for value in column if value == value)  # noqa: PLR0124 - only NaN is not itself
    if not points:
        return None
    n = len(points)
    return Summary(
        avg=math.fsum(points) / n,
        p10=percentile(points, 10),
        p50=percentile(points, 50),
        p90=percentile(points, 90),
        max=points[-1],
        spike_share=(n - bisect_left(points, SPIKE)) / n if counted_in == "percent" else None,
    )


def percentile(ordered: Sequence[float], percent: int) -> float:
    """Return the point at a percentile of ascending ones."""
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def time_weights(timestamps: Sequence[int]) -> tuple[list[float], float, list[bool]]:
    """Return the seconds that each record stands for, those that none does, and which records follow a hole.

    A record stands for the time since the one before it. The first one stands for the median of these.
    """
    gaps = [float(later - earlier) for earlier, later in pairwise(timestamps)]
    if not gaps:
        return [0.0] * len(timestamps), 0.0, [False] * len(timestamps)
    usual = float(statistics.median(gaps))
    most = HOLE * usual
    known = [usual, *(min(gap, most) for gap in gaps)]
    holes = [False, *(gap > most for gap in gaps)]
    return known, sum(max(0.0, gap - most) for gap in gaps), holes


def weighted_mean(column: Sequence[float] | None, weight: Sequence[float]) -> float | None:
    """Return the mean weighted by time, or the value of a record that stands for no time."""
    pairs = [(value, w) for value, w in zip(column or (), weight, strict=False) if value == value]  # noqa: PLR0124
    total = sum(w for _, w in pairs)
    if total:
        return math.fsum(value * w for value, w in pairs) / total
    return math.fsum(value for value, _ in pairs) / len(pairs) if pairs else None


def measure_times(log: UsageLog) -> Times:
    """Return what the log covers and what happened in that time."""
    weight, no_data, holes = time_weights(log.timestamps)
    observed = sum(weight)
    accelerators = [name for name in log.series if _is_utilization(name)]
    idle = sum(_idle_seconds(log.series[name], weight, holes) for name in accelerators)
    count = max(len(accelerators), (log.metadata and log.metadata.gpu_count) or 0)
    cpu = log.series.get(CPU, ())
    return Times(
        durations={
            "observed_s": observed,
            "idle_gpu_s": idle,
            "gpu_s": count * observed if accelerators else 0.0,
            "no_data_s": no_data,
            "saturated_s": sum(w for value, w in zip(cpu, weight, strict=False) if value >= SATURATED),
        },
        cpu_avg=weighted_mean(log.series.get("cpu|avg"), weight),
        memory_avg=weighted_mean(log.series.get("memory|avg"), weight),
        gpus=len(accelerators),
        idle_share=idle / (count * observed) if count and observed and accelerators else None,
    )


def find_peak(log: UsageLog) -> MemoryPeak | None:
    """Return the first record with the most memory in use, and the commands that ran then."""
    column = log.series.get(MEMORY)
    points = [(value, -at) for at, value in enumerate(column or ()) if value == value]  # noqa: PLR0124
    if not points:
        return None
    value, at = max(points)
    return MemoryPeak(
        at=log.timestamps[-at],
        percent=value,
        left=max(0.0, 100 - value),
        commands=sorted(log.commands[number] for number in log.running[-at]),
        oom_risk=value >= SATURATED,
    )


def _is_utilization(series: str) -> bool:
    return series.startswith("gpu_usage|") and series.endswith("|util_percent|max")


def _idle_seconds(column: Sequence[float], weight: Sequence[float], holes: Sequence[bool]) -> float:
    """Return the seconds of idle stretches; a stretch ends where nothing is known."""
    total = run = 0.0
    for value, w, hole in zip(column, weight, holes, strict=True):
        if hole or not value < IDLE:
            total += run if run >= IDLE_SECONDS else 0
            run = 0.0
        if value < IDLE:
            run += w
    return total + (run if run >= IDLE_SECONDS else 0)


def pack_histograms(histograms: Sequence[Histogram]) -> int:
    """Pack the bins of histograms into one number: adding it adds every bin."""
    bins = [many for histogram in histograms for many in histogram.bins]
    return int.from_bytes(struct.pack(f"<{len(bins)}Q", *bins), "little")


def unpack_histograms(number: int, totals: Sequence[int]) -> list[Histogram]:
    """Unpack the histograms of a number, given their sums of values."""
    count = len(totals) * BINS
    bins = struct.unpack(f"<{count}Q", number.to_bytes(count * BIN_BYTES, "little"))
    return [Histogram(bins[at * BINS : (at + 1) * BINS], total) for at, total in enumerate(totals)]


def encode_bins(number: int, count: int) -> bytes:
    """Encode the packed number of `count` histograms for the database."""
    return zlib.compress(number.to_bytes(count * BINS * BIN_BYTES, "little"), 6)


def decode_bins(stored: bytes, count: int) -> int:
    """Decode a stored number."""
    return int.from_bytes(zlib.decompressobj().decompress(stored, count * BINS * BIN_BYTES), "little")


def measure_log(log: UsageLog) -> dict[str, Measured]:
    """Measure every metric; of accelerators, the busiest one of a record counts, and their mean in averages."""
    weight = time_weights(log.timestamps)[0]
    return {metric: _measure_metric(*_columns_of_metric(log, metric), weight) for metric in METRICS}


def as_columns(measured: Mapping[str, Measured]) -> Measures:
    """Return the columns of a job's row for its metrics, null where nothing was measured."""
    measures = {
        METRIC_COLUMNS[metric]: metric_measured.measure for metric, metric_measured in measured.items()
    }
    columns = {
        f"{name}_{part}": getattr(each, part, None)
        for name, each in measures.items()
        for part in Measure._fields
    }
    return cast("Measures", columns)


def _columns_of_metric(
    log: UsageLog, metric: str
) -> tuple[Sequence[float], Sequence[float], Sequence[float]]:
    """Return the records' maxima, their means over accelerators, and the means of means."""
    if metric not in ACCELERATOR_FIELDS:
        most = log.series.get(f"{metric}|max", ())
        return most, most, log.series.get(f"{metric}|avg", ())
    ends = {kind: f"|{ACCELERATOR_FIELDS[metric]}|{kind}" for kind in ("max", "avg")}
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
    """Return the mean of every record over some columns, or its maximum."""
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


def _measure_metric(
    most: Sequence[float], means: Sequence[float], averages: Sequence[float], weight: Sequence[float]
) -> Measured:
    points = sorted(value for value in most if value == value)  # noqa: PLR0124 - only NaN is not itself
    if not points:
        return Measured(None, Histogram.of(()))
    measure = Measure(avg=weighted_mean(averages, weight), p90=percentile(points, 90), max=points[-1])
    return Measured(measure, Histogram.of(points, means=means))
