"""What do the numbers of a log come to? By series, and over time."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from bot.ci.utilization.parse.columns import unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.ci.utilization.parse.usage_log import UsageLog
    from bot.ci.utilization.tables import Durations

SPIKE = 90  # percent
SATURATED = 95
IDLE = 5
IDLE_SECONDS = 60  # a shorter run is a pause
HOLE = 3  # median gaps; from there on nothing is known
CPU, MEMORY = "cpu|max", "memory|max"


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One series. Percentiles are of the points, none in between."""

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


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """The record with the most memory in use."""

    at: int
    percent: float
    left: float  # percent up to all of it
    commands: list[str]  # that ran then
    oom_risk: bool


def summaries(log: UsageLog, *, ends: str = "") -> dict[str, Summary]:
    """Return the summary of every series that has points and whose id ends like this."""
    found = {
        series: summary(column, unit(series))
        for series, column in log.series.items()
        if series.endswith(ends)
    }
    return {series: one for series, one in found.items() if one}


def summary(column: Iterable[float], counted_in: str = "percent") -> Summary | None:
    """Return the summary of points; NaN is none."""
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
    """Return the point at this place of ascending ones."""
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def weights(timestamps: Sequence[int]) -> tuple[list[float], float, list[bool]]:
    """Return how many seconds each record stands for, how many none does, and which records come after a hole.

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


def mean(column: Sequence[float] | None, weight: Sequence[float]) -> float | None:
    """Return the mean weighted by time; of one record that stands for no time, its value."""
    pairs = [(value, w) for value, w in zip(column or (), weight, strict=False) if value == value]  # noqa: PLR0124
    total = sum(w for _, w in pairs)
    if total:
        return math.fsum(value * w for value, w in pairs) / total
    return math.fsum(value for value, _ in pairs) / len(pairs) if pairs else None


def times(log: UsageLog) -> Times:
    """Return what the log covers and what happened in that time."""
    weight, no_data, holes = weights(log.timestamps)
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
        cpu_avg=mean(log.series.get("cpu|avg"), weight),
        memory_avg=mean(log.series.get("memory|avg"), weight),
        gpus=len(accelerators),
        idle_share=idle / (count * observed) if count and observed and accelerators else None,
    )


def peak(log: UsageLog) -> Peak | None:
    """Return the first record with the most memory in use, and who ran then."""
    column = log.series.get(MEMORY)
    points = [(value, -at) for at, value in enumerate(column or ()) if value == value]  # noqa: PLR0124
    if not points:
        return None
    value, at = max(points)
    return Peak(
        at=log.timestamps[-at],
        percent=value,
        left=max(0.0, 100 - value),
        commands=sorted(log.commands[number] for number in log.running[-at]),
        oom_risk=value >= SATURATED,
    )


def _is_utilization(series: str) -> bool:
    return series.startswith("gpu_usage|") and series.endswith("|util_percent|max")


def _idle_seconds(column: Sequence[float], weight: Sequence[float], holes: Sequence[bool]) -> float:
    """Return the seconds of runs without work; a run ends where nothing is known."""
    total = run = 0.0
    for value, w, hole in zip(column, weight, holes, strict=True):
        if hole or not value < IDLE:
            total += run if run >= IDLE_SECONDS else 0
            run = 0.0
        if value < IDLE:
            run += w
    return total + (run if run >= IDLE_SECONDS else 0)
