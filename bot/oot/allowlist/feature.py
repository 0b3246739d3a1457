"""What the allowlist adds to the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import Feature

if TYPE_CHECKING:
    from bot.core.settings import Settings


def periodic(_settings: Settings) -> dict[str, float]:
    """Return seconds between two runs, by task kind: on GitHub an unchanged file is answered with 304."""
    return {"allowlist": 30.0}


FEATURE = Feature(
    name="allowlist",
    tables="bot.oot.allowlist.tables",
    tasks={"allowlist": "bot.oot.allowlist.refresh:refresh_allowlist"},
    periodic="bot.oot.allowlist.feature:periodic",
    watched="bot.oot.allowlist.refresh:watched",
    commands={"allowlist": "bot.console.allowlist:allowlist"},
)
