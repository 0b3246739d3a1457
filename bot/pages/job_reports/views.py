"""The views of job reports, and what their templates use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.evidence.tests.parse.texts import shown_digest
from bot.pages.job_reports import (
    benchmark_series,
    benchmarks,
    caches,
    contributions,
    script_metrics,
    selected_tests,
    stable_branch,
)
from bot.pages.job_reports.day_window import format_change, format_number, format_share, iso_day
from bot.web import html

if TYPE_CHECKING:
    from aiohttp import web

VIEWS = (
    caches.VIEW,
    script_metrics.VIEW,
    benchmarks.VIEW,
    benchmark_series.VIEW,
    selected_tests.VIEW,
    contributions.VIEW,
    stable_branch.VIEW,
)


def setup(app: web.Application) -> None:
    """Add what the templates use."""
    filters = {
        "amount": format_number,
        "change": format_change,
        "date": iso_day,
        "share": format_share,
        "shown_digest": shown_digest,
    }
    html.add_names(app, filters=filters)
