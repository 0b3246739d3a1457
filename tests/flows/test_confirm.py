"""When GitHub's own word on a blocking backend cannot be had: what is waited for, what is said, what is red."""

from __future__ import annotations

import asyncio

import pytest

from tests.flows.scenarios import HANGS, HoldingClock
from tests.harness import L4, UPSTREAM, replace
from tests.process import PATIENCE
from tests.serving import SQLITE

pytestmark = SQLITE
HOUR = 1200  # a third of one, as everybody's patience is here: less time passes, and less is done meanwhile


@pytest.fixture
def clock():
    return HoldingClock()


@pytest.fixture
def settings(settings):
    return replace(settings, job_timeout=6 * HOUR)


def tpu(bot, pull):
    return bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"]


def unheard(bot):
    """Let no delivery of GitHub arrive any more."""
    bot.app.webhook_url = None


async def green(bot, run, **options):
    assert (await bot.report(bot.dispatch(L4), run_id=str(run.id), **options))[0] == 200


async def test_an_app_that_may_not_read_runs_times_out_and_says_why(bot, github, pull):
    run = await github.start_run(L4)
    unheard(bot)
    github.faults.add(
        path=rf"{L4}/actions/runs/",
        status=403,
        body={"message": "Resource not accessible by integration"},
        times=10_000,
    )
    await green(bot, run)
    await bot.wait(5 * HOUR)
    assert tpu(bot, pull)[:2] == ("in_progress", None)
    await bot.wait(HOUR + 900)
    status, conclusion, title = tpu(bot, pull)
    assert (status, conclusion) == ("completed", "timed_out")
    assert "actions: read" in title


async def test_an_app_that_left_the_backend_is_no_run_that_does_not_exist(bot, github, pull):
    run = await github.start_run(L4)
    unheard(bot)
    await green(bot, run)
    github.uninstall(L4, github.app)
    bot.clock.advance(3600)  # tokens and installations are asked for anew
    await bot.wait(300)
    assert tpu(bot, pull)[:2] == ("in_progress", None)
    await bot.wait(6 * HOUR)
    status, conclusion, title = tpu(bot, pull)
    assert (status, conclusion) == ("completed", "timed_out")
    assert "actions: read" in title


async def test_a_run_github_does_not_show_yet_is_asked_for_again(bot, github, pull):
    run = await github.start_run(L4)
    unheard(bot)
    github.faults.add(path=rf"{L4}/actions/runs/", status=404, body={"message": "Not Found"}, times=2)
    await green(bot, run)
    await github.finish_run(run, "success")
    await bot.settle(horizon=12)
    assert tpu(bot, pull)[:2] == ("in_progress", None)
    await bot.settle(horizon=60)
    assert tpu(bot, pull)[:2] == ("completed", "success")


async def test_a_run_github_never_shows_is_red_within_minutes(bot, github, pull):
    unheard(bot)
    assert (await bot.report(bot.dispatch(L4), run_id="4711"))[0] == 200
    await bot.wait(240)
    status, conclusion, title = tpu(bot, pull)
    assert (status, conclusion) == ("completed", "failure")
    assert "no run 4711" in title


async def test_while_github_is_away_patience_ends_all_the_same(bot, github, pull):
    run = await github.start_run(L4)
    unheard(bot)
    github.faults.add(path=rf"{L4}/actions/runs/", status=502, times=100_000)
    await green(bot, run)
    await bot.wait(7 * HOUR)
    assert tpu(bot, pull)[:2] == ("completed", "timed_out")


async def test_the_patience_with_a_rerun_begins_with_the_rerun(bot, github, pull):
    run = await github.start_run(L4)
    job = await github.start_job(run, "build")
    await green(bot, run, conclusion="failure")
    await github.finish_job(job, "failure")
    await github.finish_run(run, "failure")
    await bot.wait(12 * HOUR)
    await github.comment(pull, "/oot rerun tpu", "alice")
    await bot.settle(horizon=20)
    unheard(bot)
    await green(bot, run, attempt=2)
    await bot.wait(HOUR)
    assert tpu(bot, pull)[:2] == ("in_progress", None)
    await github.finish_run(run, "success")
    await bot.wait(900)
    assert tpu(bot, pull)[:2] == ("completed", "success")


@pytest.mark.parametrize(
    "answer",
    [{"status": 200}, {"status": 502}, {"status": 403, "headers": {"Retry-After": "7200"}}],
    ids=["it goes on", "no answer", "ask me later"],
)
async def test_a_word_that_comes_while_github_is_asked_is_heard_at_once(bot, github, pull, answer):
    run = await github.start_run(L4)
    await green(bot, run)
    await bot.wait(HOUR)
    told = next(one.payload for one in github.deliveries if one.action == "in_progress")["workflow_run"]
    github.faults.add(path=rf"{L4}/actions/runs/", body=told, delay=HANGS, **answer)
    bot.clock.advance(600)
    working = asyncio.create_task(bot.settle())
    await asyncio.wait_for(bot.clock.hanging.wait(), PATIENCE)
    await github.finish_run(run, "success")
    await bot.worker.apply()
    bot.clock.let_go.set()
    await working
    assert tpu(bot, pull)[:2] == ("completed", "success")
