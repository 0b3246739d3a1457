"""The feature `what_ran`: what a run tested, and what it left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature

if TYPE_CHECKING:
    from bot.core.settings import Settings


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"td_misses": 3600.0}


FEATURE = Feature(
    name="what_ran",
    tables="bot.ci.extras.what_ran.tables",
    tasks={"td_misses": "bot.ci.extras.what_ran.misses:find_misses"},
    background=frozenset({"td_misses"}),
    periodic="bot.ci.extras.what_ran.feature:periodic",
    exports="bot.ci.extras.what_ran.exports:EXPORTS",
    prune="bot.ci.extras.what_ran.misses:prune",
    views="bot.ci.extras.what_ran.ran_page:VIEWS",
    routes="bot.ci.extras.what_ran.ran_page:setup",
    sections={"run": "bot.ci.extras.what_ran.sections:show_run"},
)
