"""The feature `partial`: results of runs that are not over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature

if TYPE_CHECKING:
    from bot.core.settings import Settings


def periodic(_settings: Settings) -> dict[str, float]:
    """Return the seconds between runs, by task kind."""
    return {"partial": 600.0}


FEATURE = Feature(
    name="partial",
    tables="bot.ci.extras.partial.tables",
    tasks={"partial": "bot.ci.extras.partial.list_running:list_running"},
    background=frozenset({"partial"}),
    periodic="bot.ci.extras.partial.feature:periodic",
    prune="bot.ci.extras.partial.list_running:prune",
)
