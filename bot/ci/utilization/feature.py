"""The feature `utilization`: what the machine did while a job ran."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="utilization",
    commands={"utilization": "bot.console.utilization:utilization"},
)
