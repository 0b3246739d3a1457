"""The views of logs in the order of the OpenAPI document, and whether there are any logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.collect import job_reads
from bot.ci.logs.tables import ci_log
from bot.ci.logs.views import branch_search, commit_search, failures, log, log_lines

if TYPE_CHECKING:
    from bot.web.asked import Asked

VIEWS = (
    *log_lines.ENDPOINTS,
    *commit_search.ENDPOINTS,
    *branch_search.ENDPOINTS,
    *failures.VIEWS,
    *log.ENDPOINTS,
)


async def has_logs(asked: Asked, repo: str) -> bool:
    """Whether logs of a repository were collected."""
    return await job_reads.has_rows(asked, repo, ci_log.c.repository_id)
