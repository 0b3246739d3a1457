"""The feature `caches`: what compiler caches save."""

from __future__ import annotations

from bot.core.feature import Feature, NavigationEntry

FEATURE = Feature(
    name="caches",
    tables="bot.ci.extras.caches.tables",
    sums=("bot.ci.extras.caches.documents:CACHES",),
    parsers={"sccache": "bot.ci.extras.parse.cache_stats:parse_stats"},
    receivers={"sccache": "bot.ci.extras.caches.documents:RECEIVER"},
    prune="bot.ci.extras.caches.documents:prune",
    views="bot.ci.extras.caches.builds_page:VIEWS",
    navigation=(
        NavigationEntry(
            bar="repository",
            path="/{repo}/builds",
            label="Compiler caches",
            place=74,
            shown="bot.ci.extras.shown_pages:has_builds",
        ),
    ),
    routes="bot.ci.extras.caches.builds_page:setup",
)
