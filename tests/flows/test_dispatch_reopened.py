"""Dispatches of pull requests that are closed, reopened, or reach the bot late."""

from __future__ import annotations

import pytest

from tests.flows.scenarios import (
    base_left_before_its_event_arrives,
    dispatched_to,
    reasons,
    states,
)
from tests.harness import L2, L3, L4, UPSTREAM

pytestmark = pytest.mark.logic


async def closed_and_reopened(bot, github, pull):
    for act in (github.close, github.reopen):
        bot.clock.advance(5)
        await act(pull)
        await bot.settle()


def verdict_dispatches(github, repo):
    """The dispatches to a backend that ask for a verdict."""
    sent = [one for one in github.dispatches if one.repo.full_name == repo]
    return [one for one in sent if one.client_payload["payload"]["action"] != "closed"]


async def test_reopening_runs_no_backend_again_that_has_ended_on_the_commit(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(verdict_dispatches(github, L4)[-1], conclusion="failure")
    await bot.settle()
    for _ in range(3):
        await closed_and_reopened(bot, github, pull)
    assert len(verdict_dispatches(github, L4)) == 1
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][1] == "failure"


async def test_reopening_runs_again_what_closing_may_have_ended_a_few_times(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    for times in (2, 3, 4, 4, 4):
        await closed_and_reopened(bot, github, pull)
        assert len(verdict_dispatches(github, L4)) == times


async def test_reopening_runs_again_what_closing_cancelled(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(verdict_dispatches(github, L4)[-1], conclusion="cancelled")
    await bot.report(verdict_dispatches(github, L3)[-1])
    await bot.settle()
    await closed_and_reopened(bot, github, pull)
    assert [len(verdict_dispatches(github, repo)) for repo in (L4, L3)] == [2, 1]
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][2] == "waiting for tpu"


@pytest.mark.parametrize("late", ["the dispatch", "the webhook"])
async def test_a_closing_that_is_over_is_not_dispatched(bot, github, late):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    if late == "the dispatch":
        github.faults.add(
            method="POST", path="/dispatches$", status=429, headers={"Retry-After": "120"}, times=4
        )
    else:
        github.faults.add(method="HOOK", path="closed")
    await closed_and_reopened(bot, github, pull)
    for one in [one for one in github.deliveries if not one.ok]:
        await github.redeliver(one)
    await bot.settle(horizon=600)
    actions = [one.client_payload["payload"]["action"] for one in github.dispatches]
    assert set(actions) == {"opened", "reopened"}


@pytest.mark.parametrize("pushed_back", [False, True])
async def test_an_event_that_arrives_late_runs_nothing_again_that_a_later_one_of_its_commit_has_run(
    bot, github, pushed_back
):
    github.faults.add(method="HOOK", path="opened")
    pull = await github.open_pull(UPSTREAM)
    first = pull.head_sha
    if pushed_back:
        for commit in (None, first):
            bot.clock.advance(5)
            await github.push_commit(pull, commit=commit)
            await bot.settle()
    else:
        await closed_and_reopened(bot, github, pull)
    before = len(verdict_dispatches(github, L4))
    (opened,) = [one for one in github.deliveries if one.action == "opened"]
    await github.redeliver(opened)
    await bot.settle()
    assert len(verdict_dispatches(github, L4)) == before
    assert bot.dispatch(L4).client_payload["payload"]["pull_request"]["head"]["sha"] == first


async def test_a_base_branch_left_before_its_event_arrives_runs_nothing(bot, github):
    pull = await base_left_before_its_event_arrives(bot, github)
    await bot.settle()
    assert len(verdict_dispatches(github, L4)) == 1
    assert sorted(await states(bot, L4)) == ["sent", "superseded"]
    bot.clock.advance(60)
    await github.retarget(pull, "release")
    await bot.settle()
    bases = [
        one.client_payload["payload"]["pull_request"]["base"]["ref"] for one in verdict_dispatches(github, L4)
    ]
    assert bases == ["main", "release"]


async def test_a_commit_pushed_back_is_dispatched_again(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    for commit in (None, pull.head_sha):
        bot.clock.advance(5)
        await github.push_commit(pull, commit=commit)
        await bot.settle()
    assert [sent.client_payload["payload"]["action"] for sent in verdict_dispatches(github, L4)] == [
        "opened",
        "synchronize",
        "synchronize",
    ]


async def test_reopening_dispatches_to_a_backend_listed_meanwhile(bot, github):
    await bot.list_backends(f"L2: [{L2}]")
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(verdict_dispatches(github, L2)[-1])
    await bot.list_backends(f"L2: [{L2}, {L3}]")
    await closed_and_reopened(bot, github, pull)
    assert [len(verdict_dispatches(github, repo)) for repo in (L2, L3)] == [1, 1]


async def test_nothing_more_is_dispatched_to_a_backend_taken_off_the_allowlist(bot, github):
    github.faults.add(method="POST", path=rf"{L4}/dispatches$", status=429, headers={"Retry-After": "120"})
    await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.list_backends(f"L2: [{L2}]")
    await bot.settle(horizon=600)
    assert dispatched_to(github, L4) == []
    assert await states(bot, L4) == ["failed"]
    assert "allowlist" in (await reasons(bot, L4))[0]
