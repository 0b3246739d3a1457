"""What becomes of jobs that never said how they ended, when GitHub says that their run is over?"""

from __future__ import annotations

import pytest

from tests.harness import L2, L3, UPSTREAM

pytestmark = pytest.mark.logic


@pytest.fixture
async def started(bot, github):
    """A run of an L3 backend whose label is on: it has said that two jobs began, one of them passed."""
    pull = await github.open_pull(UPSTREAM, labels=["ciflow/oot/npu"])
    await bot.settle()
    run = await github.start_run(L3, event="repository_dispatch", name="CI")
    for job in ("build", "test"):
        await bot.report(bot.dispatch(L3), status="in_progress", job=job, run_id=str(run.id))
    await bot.report(bot.dispatch(L3), job="build", run_id=str(run.id))
    await bot.settle(horizon=60)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][0] == "in_progress"
    return pull, run


@pytest.mark.parametrize("conclusion", ["failure", "cancelled", "timed_out", "startup_failure"])
async def test_a_run_that_ended_badly_ends_its_check_at_once(bot, github, started, conclusion):
    pull, run = started
    await github.finish_run(run, conclusion)
    await bot.settle(horizon=60)
    shown = "cancelled" if conclusion == "cancelled" else "neutral"  # what failed at L3 blocks nobody
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][:2] == ("completed", shown)
    _, page = await bot.get(f"/api/oot/pulls/{UPSTREAM}/{pull.number}")
    ends = {job["job_name"]: (job["status"], job["conclusion"]) for job in page["jobs"]}
    assert ends == {"build": ("completed", "success"), "test": ("completed", conclusion)}


async def test_a_report_that_comes_after_all_counts(bot, github, started):
    pull, run = started
    await github.finish_run(run, "cancelled")
    await bot.settle(horizon=60)
    assert (await bot.report(bot.dispatch(L3), job="test", run_id=str(run.id)))[0] == 200
    await bot.settle(horizon=60)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][:2] == ("completed", "success")


async def test_a_run_that_ended_well_says_nothing_of_a_job_that_did_not_report(bot, github, started):
    pull, run = started
    await github.finish_run(run, "success")
    await bot.settle(horizon=60)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][0] == "in_progress"


async def test_an_older_attempt_that_ended_says_nothing_of_the_newer(bot, github, started):
    pull, run = started
    await github.finish_run(run, "cancelled")
    await bot.settle(horizon=60)
    cancelled = next(one for one in reversed(github.deliveries) if one.event == "workflow_run")
    await bot.report(bot.dispatch(L3), status="in_progress", job="test", run_id=str(run.id), attempt=2)
    await github.redeliver(cancelled)
    await bot.settle(horizon=60)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][0] == "in_progress"


async def test_a_stranger_to_the_dispatch_ends_nothing(bot, github, started):
    pull, _ = started
    other = await github.start_run(L2, event="push", name="CI")
    await github.finish_run(other, "cancelled")
    await bot.settle(horizon=60)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][0] == "in_progress"
