"""The views of job reports, and what their templates use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.pages.job_reports import benchmark_series, benchmarks, day_window
from bot.web import html

if TYPE_CHECKING:
    from aiohttp import web

JOB_REPORT_VIEWS = (benchmarks.VIEW, benchmark_series.VIEW)


def setup(app: web.Application) -> None:
    """Add what the templates use."""
    html.add_names(app, filters={"amount": day_window.format_number, "change": day_window.format_change})
