"""Counting days of daily sums at once, as the task `sum` does one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.core.feature import load
from bot.queue import sums

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.context import Context
    from bot.queue.sums import Place, Sum

TOGETHER = 100  # days written in one transaction


async def count_days(context: Context, what: Sum, places: Iterable[Place]) -> None:
    """Count days, and what follows from each."""
    wanted = list(places)
    for start in range(0, len(wanted), TOGETHER):
        part = wanted[start : start + TOGETHER]
        counted = [(place, await load(what.count)(context, place)) for place in part]
        async with context.store.transaction() as tx:
            for place, rows in counted:
                await sums.write(tx, what, place, rows)
