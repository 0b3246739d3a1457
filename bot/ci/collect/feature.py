"""What collecting adds to the program."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="collect",
    tables="bot.ci.collect.tables",
    settings="bot.ci.collect.settings:CollectSettings",
)
