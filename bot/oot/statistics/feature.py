"""The feature `statistics`: daily sums of backends and the task that recounts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature

if TYPE_CHECKING:
    from bot.core.settings import Settings


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"rollup": 10.0}


FEATURE = Feature(
    name="statistics",
    tables="bot.oot.statistics.tables",
    tasks={"rollup": "bot.oot.statistics.rollup:run"},
    periodic="bot.oot.statistics.feature:periodic",
    before_commit="bot.oot.statistics.rollup:mark_stale",
)
