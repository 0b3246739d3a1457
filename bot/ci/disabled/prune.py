"""Deleting what is kept of disabled tests: pull requests that were closed, and days as old as records get."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.disabled import day_rows, pull_rows
from bot.queue.sums import DAY

if TYPE_CHECKING:
    from bot.context import Context


async def prune(context: Context) -> dict[str, int]:
    """Forget pull requests that are no longer open, and days past the retention of records."""
    oldest = context.clock.now() // DAY - context.settings.record_retention_days
    async with context.store.transaction() as tx:
        return {
            "what pull requests close": await pull_rows.forget_closed(tx),
            "days of disabled tests": await day_rows.delete_before(tx, oldest),
        }
