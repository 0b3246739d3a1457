"""What the grid of a repository's own CI adds to the program."""

from __future__ import annotations

from bot.core.feature import Feature

FEATURE = Feature(
    name="trunk",
    tables="bot.ci.trunk.tables",
    before_commit="bot.ci.trunk.cell_index:write",
    routes="bot.ci.trunk.api:setup",
    openapi="bot.ci.trunk.openapi:OPERATIONS",
    settings="bot.ci.trunk.settings:TrunkSettings",
)
