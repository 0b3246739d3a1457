"""What results add to the program: their tables."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="results",
    tables="bot.oot.results.tables",
    exports="bot.oot.results.exports:EXPORTS",
    retained="bot.oot.results.store.jobs:retained",
)
