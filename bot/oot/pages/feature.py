"""What the HUD adds to the program: pages and their JSON."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="pages", routes="bot.oot.pages.pages:setup", openapi="bot.oot.pages.openapi:OPERATIONS"
)
