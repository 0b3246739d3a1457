"""How much of the database one backend may fill with failed tests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.harness import L2, L3, UPSTREAM
from tests.serving import SQLITE

TESTS = [
    {"name": f"test_{number}", "message": "m" * 1_000, "stacktrace": "s" * 4_000} for number in range(60)
]


@pytest.fixture
def settings(settings):
    """The settings of a bot that takes 1 MB of failed tests an hour from each backend."""
    return replace(settings, report_mb_per_hour=1)


@SQLITE
async def test_a_backend_fills_no_more_than_its_share_of_the_database(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()

    async def report(backend, job, **more):
        return await bot.report(
            bot.dispatch(backend), job=job, conclusion="failure", failed_tests=TESTS, **more
        )

    answers = [await report(L2, f"job {number}") for number in range(5)]
    assert [status for status, _ in answers] == [200, 200, 200, 429, 429]  # 300 kB each
    assert answers[3][1]["error"] == "rate_limited"
    assert "1 MB of failed tests an hour" in answers[3][1]["detail"]
    assert (await bot.report(bot.dispatch(L2), job="small"))[
        0
    ] == 200  # what failed is no reason to refuse the rest
    assert (await report(L3, "job"))[0] == 200
    bot.clock.advance(3601)
    assert (await report(L2, "job 4"))[0] == 200
