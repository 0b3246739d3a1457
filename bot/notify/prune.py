"""Old notices are deleted: what was told and sent long ago, and conditions of which nothing is heard any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ingest.prune import delete_rows
from bot.notify import rows

if TYPE_CHECKING:
    from bot.context import Context

DAY = 86_400_000  # milliseconds
KEPT = 30 * DAY


async def prune_notices(context: Context) -> dict[str, int]:
    """Delete what is older than a month; a notice stays for as long as its condition holds."""
    before = context.clock.now() - KEPT
    old = [await delete_rows(context, table, which) for table, which in rows.unused(before).items()]
    return {"notices": sum(old)}
