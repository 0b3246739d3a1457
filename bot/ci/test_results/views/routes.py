"""The views of test results in the order of the OpenAPI document, and what their templates use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.ci.collect import job_reads
from bot.ci.test_results.tables import test
from bot.ci.test_results.views import (
    backend_tests,
    commit_tests,
    compare_tests,
    failing,
    flaky_tests,
    history,
    lost_tests,
    one_test,
    run_tests,
    test_file,
    test_list,
)
from bot.web import html

if TYPE_CHECKING:
    from aiohttp import web

    from bot.web.asked import Asked

VALUES = {"SECONDS": history.seconds, "LOSS_WORDS": lost_tests.words}  # what templates see
VIEWS = (
    test_list.VIEW,
    one_test.VIEW,
    lost_tests.VIEW,
    run_tests.VIEW,
    backend_tests.VIEW,
    compare_tests.VIEW,
    commit_tests.VIEW,
    test_file.VIEW,
    flaky_tests.VIEW,
)


def setup(app: web.Application) -> None:
    """Add what templates use."""
    html.add_names(app, values=failing.VALUES | VALUES)


async def has_tests(asked: Asked, repo: str) -> bool:
    """Whether tests of a repository are known."""
    return await job_reads.has_rows(asked, repo, test.c.repository_id)
