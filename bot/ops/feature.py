"""What the operator's tools add to the program."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="ops",
    tables="bot.ops.tables",
    views="bot.ops.overview:VIEWS",
    routes="bot.ops.overview:setup",
    commands={
        "doctor": "bot.console.doctor:doctor",
        "tasks": "bot.console.tasks:tasks",
        "backup": "bot.console.backup:backup",
        "init": "bot.console.init:init",
    },
)
