"""The feature `queue`: the table of tasks, and the task that counts daily sums."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="queue",
    tables="bot.queue.tables",
    tasks={"sum": "bot.queue.sums:recount_place"},
    background=frozenset({"sum"}),
)
