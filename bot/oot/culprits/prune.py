"""Deleting searches that ended longer ago than records are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.oot.culprits import rows
from bot.oot.statistics.days import DAY

if TYPE_CHECKING:
    from bot.context import Context


async def delete_old_searches(context: Context) -> dict[str, int]:
    """Delete what is past the retention of records."""
    before = context.clock.now() - context.settings.record_retention_days * DAY
    async with context.store.transaction() as tx:
        return {"searches for culprits": await rows.delete_old(tx, before)}
