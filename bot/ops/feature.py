"""What the operator's tools add to the program."""

from __future__ import annotations

from bot.core.feature import Feature, NavigationEntry

FEATURE = Feature(
    name="ops",
    tables="bot.ops.tables",
    views="bot.ops.overview:VIEWS",
    routes="bot.ops.overview:setup",
    navigation=(NavigationEntry(bar="site", path="/api", label="API", place=90),),
    commands={
        "doctor": "bot.console.doctor:doctor",
        "tasks": "bot.console.tasks:tasks",
        "backup": "bot.console.backup:backup",
        "init": "bot.console.init:init",
    },
)
