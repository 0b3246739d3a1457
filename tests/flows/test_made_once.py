"""Nothing is created twice while GitHub still executes a request whose connection or process has ended."""

from __future__ import annotations

import asyncio

import pytest

from bot.queue import tasks
from tests import harness
from tests.flows.scenarios import HANGS, HoldingClock
from tests.harness import L4, UPSTREAM
from tests.process import PATIENCE, until
from tests.serving import SQLITE


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


@SQLITE
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


@SQLITE
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


@SQLITE
async def test_what_github_has_not_made_after_all_is_made(bot, github):
    github.faults.add(method="POST", path="check-runs$", drop=True)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle(horizon=15)
    assert made(github, pull) == ["oot / gate", "oot / tpu"]


@SQLITE
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


# Nothing is created twice when GitHub is slow: one process loses its lease in mid-call, another takes over.


@pytest.fixture
def slow(github):
    """Make GitHub slow: its first answer takes most of a lease, the next one longer than what is left of it."""

    def add(path):
        github.faults.add(method="POST|PATCH", path="check-runs", status=None, delay=20)
        github.faults.add(method="POST", path=path, status=None, delay=HANGS)

    return add


async def meanwhile(bot, settings, *, lasts, then=None, horizon=10):
    """Let another process take over what `bot` is in the middle of, and let its call end only then."""
    clock = bot.clock
    beginning = asyncio.create_task(bot.settle(horizon=60))
    await asyncio.wait_for(clock.hanging.wait(), PATIENCE)
    clock.advance(lasts)
    other = harness.running(settings, github=bot.github, issuer=bot.issuer, app=bot.app, clock=clock)
    async with other as second:
        async with second.store.transaction() as tx:
            await tasks.release(tx)
        if then:
            await then(second)
        await second.settle(horizon=horizon)
        clock.let_go.set()
        await beginning
        await second.settle(horizon=120)


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_a_check_run_is_made_once_though_a_lease_runs_out_while_github_is_slow(
    bot, github, settings, slow
):
    slow("check-runs$")
    pull = await github.open_pull(UPSTREAM)
    await meanwhile(bot, settings, lasts=15)
    names = [run.name for run in github.check_runs_all(UPSTREAM, pull.head_sha)]
    assert sorted(names) == ["oot / gate", "oot / tpu"]
    rows = {row["name"]: row["check_run_id"] for row in await bot.rows("oot_check")}
    assert rows == {run.name: run.id for run in github.check_runs_all(UPSTREAM, pull.head_sha)}


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_the_comment_is_made_once_though_a_lease_runs_out_while_github_is_slow(
    bot, github, settings, slow
):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(bot.dispatch(L4), conclusion="failure")
    slow("comments$")
    await meanwhile(bot, settings, lasts=31, horizon=1)
    (comment,) = github.comments(pull)
    assert "❌ failed" in comment.body
    assert [row["comment_id"] for row in await bot.rows("oot_comment")] == [comment.id]


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_what_a_process_without_a_lease_writes_late_is_put_right(bot, github, settings):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    dispatch = bot.dispatch(L4)
    await bot.report(dispatch, conclusion="failure")
    await bot.settle(horizon=60)
    github.faults.add(method="PATCH", path="issues/comments/", status=None, delay=HANGS)
    await bot.report(dispatch, status="in_progress", job="tests")

    async def fail(second):
        assert (await second.report(dispatch, conclusion="failure", job="tests"))[0] == 200

    await meanwhile(bot, settings, lasts=31, then=fail, horizon=60)
    (comment,) = github.comments(pull)
    assert "2 of 2 failed" in comment.body
