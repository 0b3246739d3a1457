"""The feature `logs`: why jobs failed, by the rules for their logs."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="logs",
    commands={"logs": "bot.console.logs:logs"},
)
