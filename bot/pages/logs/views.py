"""The views of logs in the order of the OpenAPI document, and whether there are any logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.evidence.logs.tables import ci_log
from bot.pages import job_reads
from bot.pages.logs import failures, log, search

if TYPE_CHECKING:
    from bot.web.parameters import Query

VIEWS = (
    *log.LINES_ENDPOINTS,
    *search.COMMIT_ENDPOINTS,
    *search.BRANCH_ENDPOINTS,
    *failures.FAILURE_VIEWS,
    *log.LOG_ENDPOINTS,
)


async def has_logs(query: Query, repo: str) -> bool:
    """Whether logs of a repository were collected."""
    return await job_reads.has_rows(query, repo, ci_log.c.repository_id)
