"""The feature `statistics`: daily sums of backends."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="statistics",
    tables="bot.oot.statistics.tables",
    sums=("bot.oot.statistics.store.rollup:BACKENDS",),
    before_commit="bot.oot.statistics.store.rollup:note_changed",
)
