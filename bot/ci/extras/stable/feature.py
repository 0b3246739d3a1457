"""The feature `stable`: the moves of a branch's last good commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature, NavigationEntry

if TYPE_CHECKING:
    from bot.core.settings import Settings


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"stable_pushes": 600.0}


FEATURE = Feature(
    name="stable",
    tables="bot.ci.extras.stable.tables",
    exports="bot.ci.extras.stable.exports:EXPORTS",
    tasks={"stable_pushes": "bot.ci.extras.stable.record_moves:record_moves"},
    background=frozenset({"stable_pushes"}),
    periodic="bot.ci.extras.stable.feature:periodic",
    prune="bot.ci.extras.stable.record_moves:prune",
    views="bot.ci.extras.stable.stable_page:VIEWS",
    navigation=(
        NavigationEntry(
            bar="repository",
            path="/{repo}/stable",
            label="Stable commits",
            place=78,
            shown="bot.ci.extras.shown_pages:has_stable",
        ),
    ),
)
