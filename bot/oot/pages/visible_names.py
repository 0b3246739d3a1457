"""Which names a request may see: those of private backends are for the administrator alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.oot.results.private_names import NOTHING_PRIVATE, read_private_names
from bot.web import access

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.oot.results.private_names import PrivateNames
    from bot.oot.results.tables import JobRow
    from bot.web.asked import Asked


async def read_names(asked: Asked, backends: Iterable[str]) -> PrivateNames:
    """Return the names that a request may not see, of these backends."""
    if access.reads_private(asked.request):
        return NOTHING_PRIVATE
    return await read_private_names(asked.tx, asked.settings, {*backends})


async def hide_in_jobs(asked: Asked, jobs: list[JobRow]) -> list[JobRow]:
    """Return jobs as a request may see them."""
    names = await read_names(asked, (row["downstream_repo"] for row in jobs))
    return [names.of_row(row, row["downstream_repo"]) for row in jobs]
