"""Nothing is created twice while GitHub still executes a request whose connection or process has ended."""

from __future__ import annotations

import asyncio

import pytest

from tests import harness
from tests.hanging import HANGS, HoldingClock
from tests.harness import L4, UPSTREAM
from tests.process import PATIENCE, until
from tests.serving import SQLITE

pytestmark = SQLITE


@pytest.fixture
def clock():
    return HoldingClock()


def made(github, pull):
    return sorted(run.name for run in github.check_runs_all(UPSTREAM, pull.head_sha))


async def let_go(bot, github):
    """Let GitHub end what it was at."""
    done = len(github.calls)
    bot.clock.let_go.set()
    await until(lambda: len(github.calls) > done, what="the call that was held")
    await github.settled()


async def test_a_check_run_is_made_once_though_the_connection_ends_before_github_has_made_it(bot, github):
    github.faults.add(method="POST", path="check-runs$", when="meanwhile", delay=HANGS)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle(horizon=5)
    assert bot.clock.hanging.is_set()
    await let_go(bot, github)
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await bot.settle(horizon=60)
    assert made(github, pull) == ["oot / gate", "oot / tpu"]
    checks = bot.checks(UPSTREAM, pull.head_sha)
    assert {name: seen[1] for name, seen in checks.items()} == {
        "oot / gate": "failure",
        "oot / tpu": "failure",
    }


async def test_the_comment_is_made_once_though_the_connection_ends_before_github_has_made_it(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    github.faults.add(method="POST", path="comments$", when="meanwhile", delay=HANGS)
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await bot.settle(horizon=15)
    assert bot.clock.hanging.is_set()
    await let_go(bot, github)
    await bot.settle(horizon=60)
    assert len(github.comments(pull)) == 1


async def test_what_github_has_not_made_after_all_is_made(bot, github):
    github.faults.add(method="POST", path="check-runs$", drop=True)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle(horizon=15)
    assert made(github, pull) == ["oot / gate", "oot / tpu"]


async def test_a_check_run_is_made_once_though_the_process_ends_before_github_has_made_it(
    bot, github, settings
):
    github.faults.add(method="POST", path="check-runs$", when="after", drop=True, delay=HANGS)
    pull = await github.open_pull(UPSTREAM)
    working = asyncio.create_task(bot.settle())
    await asyncio.wait_for(bot.clock.hanging.wait(), PATIENCE)
    working.cancel()  # what it was at hears nothing any more
    again = harness.running(settings, github=github, issuer=bot.issuer, app=bot.app, clock=bot.clock)
    async with again as second:
        await second.settle(horizon=5)
        await let_go(second, github)
        await second.settle(horizon=60)
        assert made(github, pull) == ["oot / gate", "oot / tpu"]
        rows = {row["name"]: row["check_run_id"] for row in await second.rows("oot_check")}
        assert rows == {run.name: run.id for run in github.check_runs_all(UPSTREAM, pull.head_sha)}
