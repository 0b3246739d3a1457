"""Is a benchmark worse? Which direction is better, by a metric's name, and how a series stands. Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from bot.job_reports.trends import SEEN_BEFORE, ValueChange, compare_value, find_level_change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.job_reports.feature import Direction, Directions
    from bot.job_reports.tables import SeriesName, SeriesPoint, SeriesRow, SeriesTrendRow

HIGHER_IS_BETTER = (
    "*speedup*", "*throughput*", "*per_sec*", "*/s", "*tps*", "*qps*", "*flops*", "*bandwidth*", "*gbps*",
    "*compression_ratio*", "*accuracy*", "*hit_rate*", "*mfu*", "*score*", "*utilization*",
)  # fmt: skip
LOWER_IS_BETTER = (
    "*latency*", "*time*", "*seconds*", "*duration*", "*_ms*", "*_us*", "*_ns*", "*ms)", "*memory*", "*_mb*",
    "*bytes*", "*size*", "*count*", "*graph_breaks*", "*loss*", "*error*",
)  # fmt: skip
COUNTS = ("*count*",)
LEAST_CHANGE, LEAST_CHANGE_OF_COUNTS = 0.05, 0.01  # shares: a smaller change is no word worth
SPEEDUP = "*speedup*"


def better_direction(metric: str, chosen: Directions = ()) -> Direction | None:
    """Return which direction of a metric is better; None if its name does not tell.

    >>> [better_direction(metric) for metric in ("abs_latency", "speedup", "frobs")]
    ['lower', 'higher', None]
    """
    name = metric.casefold()
    for glob, better in chosen:
        if fnmatchcase(name, glob.casefold()):
            return better
    if any(fnmatchcase(name, glob) for glob in HIGHER_IS_BETTER):
        return "higher"
    return "lower" if any(fnmatchcase(name, glob) for glob in LOWER_IS_BETTER) else None


def least_change(metric: str) -> float:
    """Return the share from which a change of a metric counts, if it is not noise.

    >>> least_change("compile_time_instruction_count")
    0.01
    """
    is_count = any(fnmatchcase(metric.casefold(), glob) for glob in COUNTS)
    return LEAST_CHANGE_OF_COUNTS if is_count else LEAST_CHANGE


def is_worse(metric: str, by: float, chosen: Directions = ()) -> bool | None:
    """Whether a change makes a metric worse; None if its name does not tell."""
    better = better_direction(metric, chosen)
    return None if better is None else (by > 0) == (better == "lower")


def change_in_words(metric: str, by: float, chosen: Directions = ()) -> str:
    """Return a change in words.

    >>> change_in_words("abs_latency", 0.07), change_in_words("throughput", -0.25)
    ('7 % slower', '25 % worse')
    >>> change_in_words("instruction_count", 0.0109)
    '1.1 % worse'
    """
    percent = abs(by) * 100
    amount = f"{percent:.1f} %" if percent < 5 else f"{percent:.0f} %"
    worse = is_worse(metric, by, chosen)
    if worse is None:
        return f"{amount} {'more' if by > 0 else 'less'}"
    timed = any(part in metric.casefold() for part in ("latency", "time", "seconds", "duration"))
    timed = timed and "count" not in metric.casefold()
    return f"{amount} {('slower' if worse else 'faster') if timed else ('worse' if worse else 'better')}"


def judge_series(
    repository_id: int, series: SeriesRow, points: Sequence[SeriesPoint], chosen: Directions
) -> SeriesTrendRow:
    """Judge a series by its trusted points: at least one, oldest first."""
    newest = points[-1]
    known = [point for point in points if point["median"] is not None]
    values = [point["median"] for point in known if point["median"] is not None]
    least = least_change(series["metric"])
    step = find_level_change(values, least=least)
    first = known[step.first] if step else None
    change = compare_value(values[-1], values[-SEEN_BEFORE - 1 : -1], least=least) if values else None
    return {
        "repository_id": repository_id,
        "series_id": series["id"],
        "at": newest["at"],
        "head_sha": newest["head_sha"],
        "value": newest["median"],
        "status": newest["status"],
        "usual": change and change.usual,
        "change": change and change.by,
        "step_change": step and step.change.by,
        "step_at": first and first["at"],
        "step_sha": first and first["head_sha"],
        "worse": bool(step and is_worse(series["metric"], step.change.by, chosen)),
    }


def compare_point(
    series: SeriesName, point: SeriesPoint, before: Sequence[SeriesPoint]
) -> ValueChange | None:
    """Compare a point with the newest trusted ones before it; None if these are too few."""
    usual = [
        point_before["median"] for point_before in before[-SEEN_BEFORE:] if point_before["median"] is not None
    ]
    if point["median"] is None:
        return None
    return compare_value(point["median"], usual, least=least_change(series["metric"]))
