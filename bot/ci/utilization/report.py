"""Numbers of groups of jobs over time: how much of a machine they use, what idles, what it costs. Pure."""

from __future__ import annotations

from collections import defaultdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import Struct

from bot.ci.utilization.sums import Sums

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from bot.ci.utilization.parse.histogram import Histogram
    from bot.ci.utilization.tables import PeriodRow

Key = TypeVar("Key", bound="Hashable")
Costs = tuple[tuple[str, float], ...]  # glob over a label -> money an hour
SHARES = (0.5, 0.9, 0.95, 0.98)
HOUR = 3600
SORTS = ("memory", "idle", "cpu", "gpu", "jobs", "cost", "name")


class Distribution(Struct, frozen=True, kw_only=True):
    """Maxima of intervals, percent: their mean, and quantiles to within a point; null without any"""

    avg: float | None
    p50: int | None
    p90: int | None
    p95: int | None
    p98: int | None


class Numbers(Struct, frozen=True, kw_only=True):
    """Measured jobs of a group; of accelerators, the busiest of an interval counts, and their mean in averages"""

    jobs: int
    records: int
    cpu: Distribution
    memory: Distribution
    gpu: Distribution
    gpu_mem: Distribution
    gpu_alloc: Distribution
    hours: float
    gpu_hours: float
    idle_gpu_hours: float
    idle_share: float | None
    cost: float | None
    wasted: float | None


class Group(NamedTuple):
    """A group of jobs: its name and, of a job, its workflow."""

    key: str
    parent: str


def numbers_of(sums: Sums, costs: Costs = ()) -> Numbers:
    """Return what sums come to."""
    idle, gpu = sums.counts["idle_gpu_s"], sums.counts["gpu_s"]
    share = min(1.0, idle / gpu) if gpu else None
    with_gpu = cost_of(((label, each[1]) for label, each in sums.seconds.items()), costs)
    distributions: Any = {metric: distribution(one) for metric, one in sums.histograms().items()}
    return Numbers(
        jobs=sums.counts["jobs"],
        records=sums.counts["records"],
        **distributions,
        hours=sum(each[0] for each in sums.seconds.values()) / HOUR,
        gpu_hours=gpu / HOUR,
        idle_gpu_hours=idle / HOUR,
        idle_share=share,
        cost=cost_of(((label, each[0]) for label, each in sums.seconds.items()), costs),
        wasted=None if share is None or with_gpu is None else with_gpu * share,
    )


def distribution(histogram: Histogram) -> Distribution:
    """Return what a histogram says."""
    p50, p90, p95, p98 = histogram.quantiles(*SHARES)
    return Distribution(avg=histogram.mean, p50=p50, p90=p90, p95=p95, p98=p98)


def cost_of(seconds: Iterable[tuple[str, int]], costs: Costs) -> float | None:
    """Return what running on some labels costs; None where no cost is set for any of them."""
    found = [
        (next((money for glob, money in costs if fnmatchcase(label, glob)), None), each)
        for label, each in seconds
    ]
    known = [money * each / HOUR for money, each in found if money is not None]
    return sum(known) if known else None


def add_up(rows: Iterable[PeriodRow], key: Callable[[PeriodRow], Key]) -> dict[Key, Sums]:
    """Return the sums of rows that share a key."""
    found: defaultdict[Key, Sums] = defaultdict(Sums)
    for row in rows:
        found[key(row)].add_row(row)
    return found


def ordered(groups: Mapping[Group, Numbers], sort: str) -> list[tuple[Group, Numbers]]:
    """Return groups, the worst first."""
    ways: dict[str, Callable[[Numbers], float]] = {
        "memory": lambda one: one.memory.p98 or 0,
        "cpu": lambda one: one.cpu.p90 or 0,
        "gpu": lambda one: one.gpu.p90 or 0,
        "idle": lambda one: one.idle_gpu_hours,
        "jobs": lambda one: one.jobs,
        "cost": lambda one: one.cost or 0.0,
        "name": lambda _: 0,
    }
    return sorted(groups.items(), key=lambda pair: (-ways[sort](pair[1]), pair[0]))


def default_sort(groups: Sequence[Numbers]) -> str:
    """Return the order that says most: the idlest accelerators first where there are any, else memory."""
    return "idle" if any(one.idle_gpu_hours for one in groups) else "memory"
