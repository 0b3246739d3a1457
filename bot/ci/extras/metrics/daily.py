"""The numbers of a day in little space, and the newest week beside the four before it. Pure."""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bot.ci.extras.metrics.tables import MetricDay, MetricGroup, MetricLineRow, MetricSums, MetricTrend

SAMPLE = 64  # values kept of a day
RECENT, BEFORE = 7, 28  # days
LEAST_DAYS = 3  # of the days before; fewer say nothing of what is usual
STEP = 0.1  # change from which the first day of a new level is named
ALL = ""  # the group of everything
LABEL_VALUES = 30  # groups of one label; the others are together
OTHERS = "other"


class Week(NamedTuple):
    """The newest week of a value beside the four before it."""

    now: float
    usual: float | None
    since: int | None  # a day

    @property
    def change(self) -> float | None:
        """By which share the week is above what it was before."""
        return None if not self.usual else (self.now - self.usual) / abs(self.usual)


def summarize(values: Sequence[float]) -> MetricSums:
    """Return the numbers of a day; of few, all are kept."""
    ordered = sorted(values)
    count = len(ordered)
    places = (
        range(count)
        if count <= SAMPLE
        else (round((at + 0.5) * count / SAMPLE - 0.5) for at in range(SAMPLE))
    )
    return {
        "count": count,
        "sum": float(sum(ordered)),
        "min": ordered[0],
        "max": ordered[-1],
        "sample": [ordered[at] for at in places],
    }


def quantile(days: Iterable[MetricSums], share: float) -> float:
    """Return the value that this share of all values of some days does not exceed.

    >>> quantile([summarize([1, 2, 3]), summarize([10])], 0.5)
    2
    """
    weighed = sorted((value, day["count"] / len(day["sample"])) for day in days for value in day["sample"])
    totals = list(accumulate(weight for _, weight in weighed))
    wanted = totals[-1] * share
    return next(value for (value, _), total in zip(weighed, totals, strict=True) if total >= wanted - 1e-9)


def sums_of_day(lines: Iterable[MetricLineRow]) -> list[MetricGroup]:
    """Return the sums of a day's lines, of every value in every group."""
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    known: defaultdict[str, set[str]] = defaultdict(set)
    for line in lines:
        groups = [ALL, *_groups(line, known)]
        for name, value in line["values"].items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                for group in groups:
                    found[name, group].append(value)
    return [
        {"value_name": name, "group_key": group, **summarize(values)}
        for (name, group), values in sorted(found.items())
    ]


def _groups(line: MetricLineRow, known: defaultdict[str, set[str]]) -> Iterable[str]:
    """Yield the groups of a line: its labels, and the configuration of its job."""
    for label, value in {**line["labels"], "config": line["config"]}.items():
        if not value:
            continue
        if value not in known[label] and len(known[label]) == LABEL_VALUES:
            yield f"{label}={OTHERS}"
            continue
        known[label].add(value)
        yield f"{label}={value}"


def compare_weeks(days: Mapping[int, MetricSums]) -> Week:
    """Return the newest week beside the four before it; both count back from the newest day that has numbers."""
    last = max(days)
    recent = {day: sums for day, sums in days.items() if last - RECENT < day <= last}
    earlier = [sums for day, sums in days.items() if last - RECENT - BEFORE < day <= last - RECENT]
    now = quantile(recent.values(), 0.5)
    if len(earlier) < LEAST_DAYS:
        return Week(now, None, None)
    before = quantile(earlier, 0.5)
    return Week(now, before, _since(recent, now, before))


def _since(recent: Mapping[int, MetricSums], now: float, before: float) -> int | None:
    """Return the first day of the present level, where that differs."""
    if not before or abs(now - before) < STEP * abs(before):
        return None
    since = None
    for day in sorted(recent, reverse=True):
        by = (quantile([recent[day]], 0.5) - before) / abs(before)
        if abs(by) < STEP or by * (now - before) < 0:
            break
        since = day
    return since


def trends(metric: str, rows: Iterable[MetricDay]) -> list[MetricTrend]:
    """Return how each value of a metric stands, from its days of all groups together."""
    by_value: defaultdict[str, dict[int, MetricSums]] = defaultdict(dict)
    for row in rows:
        by_value[row["value_name"]][row["day"]] = row
    return [_trend(metric, name, by_value[name]) for name in sorted(by_value)]


def _trend(metric: str, name: str, days: Mapping[int, MetricSums]) -> MetricTrend:
    week, last = compare_weeks(days), max(days)
    shown = sorted(day for day in days if day > last - RECENT - BEFORE)
    return {
        "metric": metric,
        "value_name": name,
        "last_day": last,
        "count": sum(sums["count"] for day, sums in days.items() if day > last - RECENT),
        "recent": week.now,
        "before": week.usual,
        "change": week.change,
        "since_day": week.since,
        "days": [(day, quantile([days[day]], 0.5)) for day in shown],
    }
