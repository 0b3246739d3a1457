"""A dispatch starts every workflow that listens for it: the gate waits for all runs that GitHub has announced."""

from __future__ import annotations

import pytest

from tests.flows.scenarios import gate, green
from tests.harness import L4, UPSTREAM


async def two_runs(bot, github):
    """Both workflows of the backend that listen; the first has passed."""
    bot.clock.advance(5)
    runs = [await github.start_run(L4, name=name) for name in ("CI", "Slow CI")]
    await green(bot, runs[0].id)
    await github.finish_run(runs[0], "success")
    await bot.settle(horizon=30)
    return runs


async def test_it_waits_for_a_run_that_is_announced_and_has_not_reported(bot, github, pull):
    _, second = await two_runs(bot, github)
    assert gate(bot, pull.head_sha) == (None, "waiting for tpu")
    title = bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][2]
    assert title == f"being confirmed: run {second.id} of the same dispatch has not reported yet"
    dispatch = bot.dispatch(L4)
    await bot.report(dispatch, status="in_progress", run_id=str(second.id), name="Slow CI")
    await bot.report(
        dispatch, status="completed", conclusion="failure", run_id=str(second.id), name="Slow CI"
    )
    await bot.settle(horizon=30)
    assert gate(bot, pull.head_sha)[0] == "failure"


@pytest.mark.logic
@pytest.mark.parametrize(
    ("conclusion", "shown"), [("success", "success"), ("skipped", "success"), ("failure", "failure")]
)
async def test_a_run_that_never_reports_ends_the_waiting_as_it_ends(bot, github, pull, conclusion, shown):
    _, second = await two_runs(bot, github)
    await github.finish_run(second, conclusion)
    await bot.settle(horizon=30)
    assert gate(bot, pull.head_sha)[0] == shown


@pytest.mark.logic
async def test_a_run_that_is_announced_late_turns_a_green_gate_back(bot, github, pull):
    first = await github.start_run(L4)
    await green(bot, first.id)
    await github.finish_run(first, "success")
    await bot.settle(horizon=2)
    assert gate(bot, pull.head_sha)[0] == "success"
    await github.start_run(L4, name="Slow CI")
    await bot.settle(horizon=10)
    assert gate(bot, pull.head_sha) == (None, "waiting for tpu")


async def test_runs_of_other_dispatches_and_other_causes_are_not_waited_for(bot, github, pull):
    first = await github.start_run(L4)
    await github.start_run(L4, name="Lint", event="push")
    await github.start_run(L4, name="Nightly", actor="mallory")
    bot.clock.advance(12)
    other = await github.open_pull(UPSTREAM)
    await bot.settle(horizon=2)
    theirs = await github.start_run(L4)
    await github.start_run(L4, name="Slow CI")
    dispatch = bot.dispatch(L4)
    await bot.report(dispatch, status="in_progress", run_id=str(theirs.id))
    bot.clock.advance(60)
    ours = bot.dispatch(L4, at=0)
    for status in ("in_progress", "completed"):
        await bot.report(ours, status=status, run_id=str(first.id))
    await github.finish_run(first, "success")
    await bot.settle(horizon=30)
    assert gate(bot, pull.head_sha)[0] == "success"
    assert gate(bot, other.head_sha)[0] is None
