"""Does a token that not all of GitHub's servers know yet cost anything? It gets 401, 403 or 404 for some seconds."""

from __future__ import annotations

import pytest

from tests.harness import L3, L4, UPSTREAM

UNKNOWN_FOR = 3_000  # milliseconds
LIFE = 20_000


@pytest.mark.logic
async def test_what_a_fresh_token_is_refused_is_asked_again_and_nothing_is_given_up(bot, github):
    github.state.replication, github.state.token_life = UNKNOWN_FOR, LIFE
    pull = await github.open_pull(UPSTREAM, labels=["ciflow/oot/npu"])
    await bot.settle(horizon=30)
    assert {row["state"] for row in await bot.rows("oot_dispatch")} == {"sent"}
    for repo in (L3, L4):
        await bot.report(bot.dispatch(repo), conclusion="failure")
    await bot.settle(horizon=90)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "failure")
    (comment,) = github.comments(pull)
    bot.clock.advance(120)  # another token, as fresh, for what is there already
    await bot.report(bot.dispatch(L3), conclusion="failure", job="another")
    await bot.settle(horizon=90)
    assert github.comments(pull) == [comment]
    assert "another" in comment.body
    made = [run.external_id for run in github.check_runs_all(UPSTREAM, pull.head_sha)]
    assert len(made) == len(set(made))
    assert [row["error"] for row in await bot.rows("task") if row["state"] == "dead"] == []


@pytest.mark.logic
async def test_a_refusal_that_takes_longer_to_arrive_than_its_token_is_fresh_is_asked_again(bot, github):
    github.faults.add(method="POST", path=rf"{L4}/dispatches$", status=404, delay=6)
    await github.open_pull(UPSTREAM)
    await bot.settle(horizon=30)
    assert {row["state"] for row in await bot.rows("oot_dispatch")} == {"sent"}


@pytest.mark.logic
async def test_a_refusal_that_is_meant_is_believed_after_one_more_try(bot, github):
    body = {"message": "Resource not accessible by integration"}
    github.faults.add(method="GET", path="/collaborators/", status=404, body=body, times=10)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle(horizon=30)
    said = await github.comment(pull, "/oot rerun", "mallory")
    await bot.settle(horizon=30)
    assert [one.content for one in said.reactions] == ["eyes", "confused"]
    asked = [call for call in github.calls if "/collaborators/" in call.path]
    assert len(asked) <= 2
