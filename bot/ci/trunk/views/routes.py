"""The views of the grid in the order of the OpenAPI document, and what their templates use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.trunk.cells import WORDS
from bot.ci.trunk.views import grid, home, last_good, metrics, other_job, queue, reliability
from bot.web import html

if TYPE_CHECKING:
    from aiohttp import web

VIEWS = (
    *home.ENDPOINTS,
    grid.VIEW,
    other_job.VIEW,
    last_good.VIEW,
    metrics.VIEW,
    reliability.VIEW,
    queue.VIEW,
)


def setup(app: web.Application) -> None:
    """Add what the templates use."""
    html.add_names(app, values={"WORDS": WORDS})
