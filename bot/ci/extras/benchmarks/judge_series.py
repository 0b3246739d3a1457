"""How a series stands, and whether a pull request makes it worse. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.extras.benchmarks import directions
from bot.ci.extras.trends import SEEN, Change, compare, find_step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bot.ci.extras.benchmarks.directions import Directions
    from bot.ci.extras.benchmarks.tables import Point, SeriesName, SeriesRow, TrendRow


def judge(repository_id: int, series: SeriesRow, points: Sequence[Point], chosen: Directions) -> TrendRow:
    """Return how a series stands by its trusted points, oldest first, at least one."""
    newest = points[-1]
    known = [point for point in points if point["median"] is not None]
    values = [point["median"] for point in known if point["median"] is not None]
    least = directions.least_change(series["metric"])
    step = find_step(values, least=least)
    first = known[step.first] if step else None
    change = compare(values[-1], values[-SEEN - 1 : -1], least=least) if values else None
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
        "worse": bool(step and directions.is_worse(series["metric"], step.change.by, chosen)),
    }


def compare_point(series: SeriesName, point: Point, before: Sequence[Point]) -> Change | None:
    """Return a point beside the newest trusted ones before it; None where these are too few."""
    usual = [one["median"] for one in before[-SEEN:] if one["median"] is not None]
    if point["median"] is None:
        return None
    return compare(point["median"], usual, least=directions.least_change(series["metric"]))
