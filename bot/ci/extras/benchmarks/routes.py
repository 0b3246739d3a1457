"""The views of benchmarks, and what their templates use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.extras import shown_days
from bot.ci.extras.benchmarks import benchmarks_page, series_page
from bot.web import html

if TYPE_CHECKING:
    from aiohttp import web

VIEWS = (benchmarks_page.VIEW, series_page.VIEW)


def setup(app: web.Application) -> None:
    """Add what the templates use."""
    html.add_names(app, filters={"amount": shown_days.number, "change": shown_days.change})
