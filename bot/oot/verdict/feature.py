"""The verdict feature: its tables."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(name="verdict", tables="bot.oot.verdict.tables")
