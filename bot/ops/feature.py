"""What the operator's tools add to the program."""

from __future__ import annotations

from bot.core.feature import Feature, NavigationEntry

FEATURE = Feature(
    name="ops",
    tables="bot.db.installation",
    views="bot.ops.administration:VIEWS",
    routes="bot.ops.administration:set_up_administration",
    navigation=(NavigationEntry(bar="site", path="/api", label="API", place=90),),
    commands={
        "doctor": "bot.console.setup:doctor",
        "tasks": "bot.console.upkeep:tasks",
        "backup": "bot.console.upkeep:backup",
        "init": "bot.console.setup:init",
    },
)
