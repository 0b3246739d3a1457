"""The views of logs in the order of the OpenAPI document."""

from __future__ import annotations

from bot.ci.logs.views import branch_search, commit_search, failures, log, log_lines

VIEWS = (
    *log_lines.ENDPOINTS,
    *commit_search.ENDPOINTS,
    *branch_search.ENDPOINTS,
    *failures.VIEWS,
    *log.ENDPOINTS,
)
