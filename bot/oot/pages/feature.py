"""What the HUD adds to the program: pages and their JSON."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="pages",
    views="bot.oot.pages.views:VIEWS",
    routes="bot.oot.pages.views:setup",
    conditions="bot.oot.pages.conditions:read_conditions",
)
