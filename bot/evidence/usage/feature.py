"""The feature `utilization`: what the machine did while a job ran."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="utilization",
    tables="bot.evidence.usage.tables",
    exports="bot.evidence.usage.exports:EXPORTS",
    tasks={"utilization": "bot.evidence.usage.store_usage:attribute_again"},
    background=frozenset({"utilization"}),
    sums=("bot.evidence.usage.daily_sums:UTILIZATION",),
    before_commit="bot.evidence.usage.store_usage:request_attribution",
    parsers={"usage": "bot.evidence.usage.parse.parse_usage:parse_log"},
    receivers={"usage": "bot.evidence.usage.store_usage:RECEIVER"},
    prune="bot.evidence.usage.daily_sums:prune_usage",
    commands={"utilization": "bot.console.evidence:utilization"},
)
