"""Pull requests whose deliveries never came are found by reading them at GitHub."""

from __future__ import annotations

from collections import Counter

import pytest

from bot.demo.github import payloads
from tests.flows.outages import (
    ROUND,
    a_job,
    asked_for,
    log_row,
    silently,
    unseen,
)
from tests.flows.scenarios import base_left_before_its_event_arrives
from tests.harness import L3, L4, UPSTREAM, running


def actions(github, repo):
    """What a backend was told of, in order."""
    sent = [one.client_payload["payload"] for one in github.dispatches if one.repo.full_name == repo]
    return [one["action"] for one in sent]


def pull_event(github, pull, action):
    """What GitHub would tell of a pull request now."""
    event = payloads.pull_request(github.state, pull, action, "alice", after=pull.head_sha)
    return payloads.envelope(github.state, event, github.state.installed_on(pull.repo)[0])


@pytest.mark.logic
async def test_pull_requests_that_no_delivery_told_of_are_relayed_moved_and_closed(bot, github):
    closed, moved = [await github.open_pull(UPSTREAM) for _ in range(2)]
    await bot.settle()
    opened = await unseen(github)
    await silently(github, github.close(closed))
    head = await silently(github, github.push_commit(moved))
    for _ in range(3):
        await bot.wait(ROUND)
    told = [sent.client_payload["payload"] for sent in github.dispatches if sent.repo.full_name == L4]
    assert sorted((one["number"], one["action"]) for one in told[2:]) == [
        (closed.number, "closed"),
        (moved.number, "synchronize"),
        (opened.number, "opened"),
    ]
    states = {row["number"]: (row["state"], row["head_sha"]) for row in await bot.rows("pull_request")}
    assert states[closed.number][0] == "closed"
    assert states[moved.number] == ("open", head)
    assert bot.checks(UPSTREAM, head)["oot / gate"][0] == "in_progress"
    calls = len([call for call in github.calls if "/pulls/" in call.path])
    await bot.wait(ROUND)
    assert len([call for call in github.calls if "/pulls/" in call.path]) == calls


@pytest.mark.logic
async def test_a_delivery_of_which_only_another_apps_copy_came_is_asked_for(bot, github, outage):
    row = log_row(github, "workflow_job", a_job(1))
    elsewhere = {"X-GitHub-Hook-Installation-Target-ID": "999999"}
    assert (await bot.send("workflow_job", a_job(1), guid=row.guid, headers=elsewhere))[0] == 202
    bot.clock.advance(120)
    outage()
    for _ in range(2):
        await bot.wait(ROUND)
    assert asked_for(github) == {row.guid: 1}
    assert [record["id"] for record in await bot.rows("workflow_job")] == [1]


@pytest.mark.logic
async def test_another_base_branch_that_no_delivery_told_of_asks_for_another_verdict(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await github.push(UPSTREAM, "release", message="a branch")
    await bot.settle()
    bot.clock.advance(60)
    await silently(github, github.retarget(pull, "release"))
    for _ in range(3):
        await bot.wait(ROUND)
    bases = [
        sent.client_payload["payload"]["pull_request"]["base"]["ref"]
        for sent in github.dispatches
        if sent.repo.full_name == L4
    ]
    assert bases == ["main", "release"]


@pytest.mark.logic
async def test_a_reopening_that_no_delivery_told_of_has_run_what_closing_cancelled(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    first, run = bot.dispatch(L4), await github.start_run(L4, event="repository_dispatch", name="CI")
    bot.clock.advance(60)
    await github.close(pull)
    await bot.settle()
    await bot.report(first, conclusion="cancelled", run_id=str(run.id))
    await github.finish_run(run, "cancelled")
    await bot.report(bot.dispatch(L3, 0))
    await bot.settle()
    bot.clock.advance(60)
    await silently(github, github.reopen(pull))
    reopened = pull_event(github, pull, "reopened")
    for _ in range(3):
        await bot.wait(ROUND)
    await bot.send("pull_request", reopened)  # it came after all
    await bot.settle()
    assert actions(github, L4) == ["opened", "closed", "reopened"]
    assert actions(github, L3) == ["opened", "closed"], "what has ended well stands"
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][2] == "waiting for tpu"
    assert [row["state"] for row in await bot.rows("pull_request")] == ["open"]


@pytest.mark.logic
async def test_the_end_of_a_draft_that_no_delivery_told_of_is_told_once(bot, github):
    pull = await github.open_pull(UPSTREAM, draft=True)
    await bot.settle()
    bot.clock.advance(60)
    await silently(github, github.ready_for_review(pull))
    for _ in range(3):
        await bot.wait(ROUND)
    await bot.send("pull_request", pull_event(github, pull, "ready_for_review"))
    await bot.settle()
    assert actions(github, L4) == ["opened", "ready_for_review"]


@pytest.mark.logic
async def test_news_that_may_still_come_by_delivery_is_waited_for(bot, github, outage):
    pull = await github.open_pull(UPSTREAM)
    await bot.wait(ROUND)
    await bot.wait(ROUND)
    assert github.dispatches == []
    outage()
    for _ in range(4):
        await bot.wait(ROUND)
    assert sorted(Counter(sent.repo.full_name for sent in github.dispatches).values()) == [1, 1, 1, 1]
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][0] == "in_progress"


@pytest.mark.logic
async def test_another_base_branch_told_too_early_and_then_not_at_all_is_told_in_the_end(bot, github):
    pull = await base_left_before_its_event_arrives(bot, github)
    bot.clock.advance(60)
    await silently(github, github.retarget(pull, "release"))
    for _ in range(3):
        await bot.wait(ROUND)
    assert actions(github, L4) == ["opened", "edited"]
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][2] == "waiting for tpu"


@pytest.mark.logic
async def test_a_delivery_that_comes_hours_late_runs_no_backend_again(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    bot.clock.advance(60)
    await silently(github, github.push_commit(pull))
    delayed = pull_event(github, pull, "synchronize")
    for _ in range(3):
        await bot.wait(ROUND)
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await bot.settle()
    await bot.send("pull_request", delayed)
    await bot.settle()
    told = Counter(sent.repo.full_name for sent in github.dispatches)
    assert set(told.values()) == {2}, "the opening, and the commit"
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][1] == "failure"


@pytest.mark.logic
async def test_pull_requests_older_than_the_bot_are_recorded_and_not_relayed(settings, github, issuer, clock):
    old = await github.open_pull(UPSTREAM)
    clock.advance(3600)
    async with running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        for _ in range(3):
            await bot.wait(ROUND)
        assert [row["number"] for row in await bot.rows("pull_request")] == [old.number]
        assert github.dispatches == []
        head = await silently(github, github.push_commit(old))
        for _ in range(3):
            await bot.wait(ROUND)
        sent = {one.client_payload["payload"]["pull_request"]["head"]["sha"] for one in github.dispatches}
        assert sent == {head}


@pytest.mark.logic
async def test_a_label_that_no_delivery_told_of_is_found_and_its_check_appears(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    assert "oot / npu" not in bot.checks(UPSTREAM, pull.head_sha)
    await silently(github, github.label(pull, "ciflow/oot/npu"))
    for _ in range(3):
        await bot.wait(ROUND)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / npu"][:2] == ("queued", None)
