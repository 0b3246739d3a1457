"""The feature `statistics`: daily sums of backends, and the names of their jobs."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="statistics",
    tables="bot.oot.statistics.tables",
    sums=("bot.oot.statistics.store.rollup:BACKENDS",),
    prune="bot.oot.statistics.store.job_names:forget_names",
    before_commit="bot.oot.statistics.store.rollup:note_changed",
)
