"""GitHub's times have seconds, and much happens in one: what do records say then, and later?"""

from __future__ import annotations

import pytest

from bot.demo.github import payloads
from tests.harness import L1, L2, L3, L4, UPSTREAM

ROUND = 660  # seconds in which each periodic task runs once more


@pytest.mark.logic
async def test_of_two_edits_in_one_second_the_last_is_shown_in_the_end(bot, github):
    """Nothing in two such deliveries tells which came last, so half of them are taken for it wrongly, at first."""
    pulls = [await github.open_pull(UPSTREAM) for _ in range(8)]
    await bot.settle()
    bot.clock.advance(60)
    for pull in pulls:
        for title in ("first", "last"):
            pull.title, pull.updated_at = title, github.state.now()
            event = payloads.pull_request(github.state, pull, "edited", "alice")
            body = payloads.envelope(github.state, event, github.state.installed_on(pull.repo)[0])
            await bot.send("pull_request", body)
    await bot.settle()
    for _ in range(3):
        await bot.wait(ROUND)
    assert [row["title"] for row in await bot.rows("pull_request")] == ["last"] * len(pulls)


@pytest.mark.logic
async def test_of_two_pushes_in_one_second_told_in_the_wrong_order_the_last_is_relayed_in_the_end(
    bot, github
):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    bot.clock.advance(60)
    first, last = [await pushed(bot, github, pull) for _ in range(2)]
    busy = github.faults.add(path="/dispatches$", status=403, headers={"Retry-After": "60"}, times=100)
    for event in (last, first):
        await bot.send("pull_request", event)
        await bot.settle()
    github.faults.waiting.remove(busy)
    await bot.wait(120)
    assert sorted(told(github)[4:]) == sorted((name, first["after"]) for name in (L1, L2, L3, L4))
    for _ in range(4):
        await bot.wait(ROUND)
    assert sorted(told(github)[8:]) == sorted((name, last["after"]) for name in (L1, L2, L3, L4))
    assert bot.checks(UPSTREAM, last["after"])["oot / gate"][0] == "in_progress"


def told(github):
    """Which backends were told of which heads, in order."""
    return [
        (one.repo.full_name, one.client_payload["payload"]["pull_request"]["head"]["sha"])
        for one in github.dispatches
    ]


async def pushed(bot, github, pull):
    """Push to a pull request; returns what GitHub would tell of it, were it not silent."""
    address, bot.app.webhook_url = bot.app.webhook_url, None
    before = pull.head_sha
    await github.push_commit(pull)
    bot.app.webhook_url = address
    moved = {"before": before, "after": pull.head_sha}
    event = payloads.pull_request(github.state, pull, "synchronize", "alice", **moved)
    return payloads.envelope(github.state, event, github.state.installed_on(pull.repo)[0])


@pytest.mark.logic
async def test_a_check_run_opened_again_shows_its_last_end(bot, github):
    """GitHub tells nobody that one was opened again, only that it was completed anew."""
    await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(bot.dispatch(L4), conclusion="failure")
    await bot.settle()
    (told,) = [
        one.payload
        for one in github.deliveries
        if (one.event, one.action) == ("check_run", "completed") and one.payload["check_run"]["name"] == "oot / tpu"
    ]  # fmt: skip
    again = told["check_run"] | {"status": "in_progress", "conclusion": None, "completed_at": None}
    await bot.send("check_run", told | {"action": "created", "check_run": again})
    for _ in range(3):
        await bot.wait(ROUND)
    assert await shown(bot, again["id"]) == ("completed", "failure")
    ended = again | {"status": "completed", "conclusion": "success", "completed_at": "2099-01-01T00:00:00Z"}
    await bot.send("check_run", told | {"check_run": ended})
    await bot.settle()
    assert await shown(bot, again["id"]) == ("completed", "success")


async def shown(bot, check_run_id):
    (row,) = [row for row in await bot.rows("check_run") if row["id"] == check_run_id]
    return row["status"], row["conclusion"]
