"""Dispatches that GitHub limits or fails are sent later; what is out of date by then is not sent."""

from __future__ import annotations

import asyncio

import pytest

from bot.app import make_worker
from tests.flows.scenarios import (
    dispatched_to,
    posts,
    states,
)
from tests.harness import L2, L4, UPSTREAM
from tests.process import PATIENCE
from tests.serving import SQLITE

pytestmark = pytest.mark.logic


@pytest.mark.parametrize(
    ("status", "headers"),
    [(429, {"Retry-After": "90"}), (403, {"Retry-After": "90"}), (403, {"X-RateLimit-Remaining": "0"})],
)
async def test_a_limit_of_github_leaves_the_dispatch_pending_until_it_is_over(bot, github, status, headers):
    github.faults.add(
        method="POST",
        path=rf"{L4}/dispatches$",
        status=status,
        headers=headers,
        body={"message": "slow down"},
    )
    await github.open_pull(UPSTREAM)
    await bot.settle(horizon=30)
    assert await states(bot, L4) == ["pending"]
    assert dispatched_to(github, L4) == []
    await bot.settle(horizon=120)
    assert await states(bot, L4) == ["sent"]
    assert len(dispatched_to(github, L4)) == 1


async def test_after_a_limit_somebody_elses_run_is_not_taken_for_ours(bot, github):
    github.faults.add(method="POST", path=rf"{L4}/dispatches$", status=429, headers={"Retry-After": "30"})
    await github.open_pull(UPSTREAM)
    await bot.settle()
    await github.start_run(L4, event="repository_dispatch", name="CI")
    await bot.settle(horizon=60)
    assert len(dispatched_to(github, L4)) == 1


@SQLITE
async def test_a_dispatch_that_always_fails_is_given_up_in_time(bot, github):
    await bot.list_backends(f"L2: [{{repo: {L2}, start_timeout: 3h}}]")
    github.faults.add(method="POST", path=rf"{L2}/dispatches$", status=502, times=100_000)
    await github.open_pull(UPSTREAM)
    await bot.wait(2.5 * 3600)
    assert await states(bot, L2) == ["pending"]
    await bot.wait(3600)
    assert await states(bot, L2) == ["failed"]
    before = len(posts(github, L2))
    await bot.wait(3600)
    assert len(posts(github, L2)) == before


async def test_a_newer_commit_drops_what_was_not_sent_of_the_one_before(bot, github):
    github.faults.add(method="POST", path=rf"{L4}/dispatches$", status=503, times=1)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    head = await github.push_commit(pull)
    await bot.settle(horizon=60)
    heads = [
        one.client_payload["payload"]["pull_request"]["head"]["sha"]
        for one in github.dispatches if one.repo.full_name == L4
    ]  # fmt: skip
    assert heads == [head]


async def test_an_opening_that_arrives_late_drops_nothing_of_the_commit_pushed_within_its_second(bot, github):
    github.faults.add(method="HOOK", path="opened")
    github.faults.add(method="POST", path=rf"{L4}/dispatches$", status=503, times=1)
    pull = await github.open_pull(UPSTREAM)
    head = await github.push_commit(pull)
    await bot.settle()
    (opened,) = [one for one in github.deliveries if one.action == "opened"]
    await github.redeliver(opened)
    await bot.settle(horizon=60)
    rows = [row for row in await bot.rows("oot_dispatch") if row["backend"] == L4]
    assert {row["head_sha"] == head: row["state"] for row in rows} == {True: "sent", False: "superseded"}


async def test_a_dispatch_superseded_while_it_is_sent_stays_so_and_shows_that_it_was_sent(bot, github):
    under_way, overtaken, sleep = asyncio.Event(), asyncio.Event(), bot.clock.sleep

    async def hold(seconds):
        if seconds != 7:
            return await sleep(seconds)
        under_way.set()
        return await overtaken.wait()

    bot.clock.sleep = hold
    github.faults.add(method="POST", path=rf"{L4}/dispatches$", status=None, delay=7)
    pull = await github.open_pull(UPSTREAM)
    settling = asyncio.create_task(bot.settle())
    await asyncio.wait_for(under_way.wait(), PATIENCE)
    head, other = await github.push_commit(pull), make_worker(bot.context)
    while await other.step():
        await github.settled()
    overtaken.set()
    await settling
    await bot.settle()
    rows = [row for row in await bot.rows("oot_dispatch") if row["backend"] == L4]
    first, second = sorted(rows, key=lambda row: row["head_sha"] == head)
    assert (first["state"], first["error"]) == ("superseded", "superseded while it was being sent")
    assert first["dispatched_at"] is not None
    assert second["state"] == "sent"


async def test_a_draft_is_dispatched_like_any_other_pull_request(bot, github):
    pull = await github.open_pull(UPSTREAM, draft=True)
    await bot.settle()
    assert len(dispatched_to(github)) == 4
    await github.ready_for_review(pull)
    await bot.settle()
    assert len(dispatched_to(github)) == 8
    for _ in range(2):
        bot.clock.advance(5)
        await github.ready_for_review(pull)
        await bot.settle()
    assert len(dispatched_to(github)) == 8
