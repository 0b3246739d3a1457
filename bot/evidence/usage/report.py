"""Numbers of groups of jobs over time: how much of a machine they use, what idles, what it costs. Pure."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import Struct

from bot.evidence.usage.daily_sums import UsageSums, first_day

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from bot.evidence.usage.parse.summary import Histogram
    from bot.evidence.usage.tables import PeriodRow

GRANULARITIES = ("day", "week", "month", "all")
SECONDS = 86_400
Key = TypeVar("Key", bound="Hashable")
Costs = tuple[tuple[str, float], ...]  # glob over a label -> money an hour
SHARES = (0.5, 0.9, 0.95, 0.98)
HOUR = 3600
SORTS = ("memory", "idle", "cpu", "gpu", "jobs", "cost", "name")


class Period(NamedTuple):
    """Some days, counted since 1970, both ends included."""

    first: int
    last: int


class SumPiece(NamedTuple):
    """A week or a day that has a sum."""

    span: int
    day: int


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


class JobGroup(NamedTuple):
    """A group of jobs: its name and, of a job, its workflow."""

    key: str
    parent: str


def split_periods(first: int, last: int, granularity: str) -> list[Period]:
    """Split a window into periods, the oldest first; those at its edges are cut."""
    if granularity == "all":
        return [Period(first, last)]
    periods: list[Period] = []
    start = first
    while start <= last:
        end = min(_end_of_period(start, granularity), last)
        periods.append(Period(start, end))
        start = end + 1
    return periods


def sum_pieces(period: Period) -> list[SumPiece]:
    """Split a period into whole weeks and the days around them."""
    pieces, day = [], period.first
    while day <= period.last:
        whole = first_day(day, 7) == day and day + 6 <= period.last
        pieces.append(SumPiece(7 if whole else 1, day))
        day += 7 if whole else 1
    return pieces


def iso_date(day: int) -> str:
    """Return a day as a date."""
    return f"{date_of(day)}"


def date_of(day: int) -> date:
    """Return the date of a day."""
    return datetime.fromtimestamp(day * SECONDS, UTC).date()


def day_of(text: str) -> int | None:
    """Return the day of an ISO date or time in UTC, or None if it is neither."""
    try:
        at_midnight = datetime.fromisoformat(text)
    except ValueError:
        return None
    at = at_midnight.replace(tzinfo=UTC) if at_midnight.tzinfo is None else at_midnight
    return int(at.timestamp() // SECONDS)


def _end_of_period(start: int, granularity: str) -> int:
    if granularity == "day":
        return start
    if granularity == "week":
        return first_day(start, 7) + 6
    date_of_start = date_of(start)
    following = date(date_of_start.year + date_of_start.month // 12, date_of_start.month % 12 + 1, 1)
    return start + (following - date_of_start).days - 1


def numbers_of(sums: UsageSums, costs: Costs = ()) -> Numbers:
    """Compute the numbers that sums come to."""
    idle, gpu = sums.counts["idle_gpu_s"], sums.counts["gpu_s"]
    share = min(1.0, idle / gpu) if gpu else None
    with_gpu = cost_of(((label, each[1]) for label, each in sums.seconds.items()), costs)
    distributions: Any = {
        metric: distribution_of(histogram) for metric, histogram in sums.histograms().items()
    }
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


def distribution_of(histogram: Histogram) -> Distribution:
    """Compute the mean and the quantiles of a histogram."""
    p50, p90, p95, p98 = histogram.quantiles(*SHARES)
    return Distribution(avg=histogram.mean, p50=p50, p90=p90, p95=p95, p98=p98)


def cost_of(seconds: Iterable[tuple[str, int]], costs: Costs) -> float | None:
    """Return the cost of running on some labels, or None if no cost is set for any of them."""
    costs_of_labels = [
        (next((money for glob, money in costs if fnmatchcase(label, glob)), None), each)
        for label, each in seconds
    ]
    known = [money * each / HOUR for money, each in costs_of_labels if money is not None]
    return sum(known) if known else None


def add_up(rows: Iterable[PeriodRow], key: Callable[[PeriodRow], Key]) -> dict[Key, UsageSums]:
    """Add up rows that share a key."""
    totals: defaultdict[Key, UsageSums] = defaultdict(UsageSums)
    for row in rows:
        totals[key(row)].add_row(row)
    return totals


def sort_groups(groups: Mapping[JobGroup, Numbers], sort: str) -> list[tuple[JobGroup, Numbers]]:
    """Sort groups, the worst first."""
    ways: dict[str, Callable[[Numbers], float]] = {
        "memory": lambda numbers: numbers.memory.p98 or 0,
        "cpu": lambda numbers: numbers.cpu.p90 or 0,
        "gpu": lambda numbers: numbers.gpu.p90 or 0,
        "idle": lambda numbers: numbers.idle_gpu_hours,
        "jobs": lambda numbers: numbers.jobs,
        "cost": lambda numbers: numbers.cost or 0.0,
        "name": lambda _: 0,
    }
    return sorted(groups.items(), key=lambda pair: (-ways[sort](pair[1]), pair[0]))


def default_sort(groups: Sequence[Numbers]) -> str:
    """Return the most telling order: by idle accelerators if there are any, else by memory."""
    return "idle" if any(numbers.idle_gpu_hours for numbers in groups) else "memory"
