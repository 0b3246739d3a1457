"""GitHub announces a commit, pull request or run before all of its servers know it: what it refuses is tried again."""

from __future__ import annotations

import pytest

from tests.flows.scenarios import finish, gate
from tests.flows.test_gate_of_merge_queues import group
from tests.harness import L2, L4, UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE

LATE = 20_000  # milliseconds until all of GitHub's servers know something new


def refused(github):
    return [(call.method, call.status) for call in github.calls if call.status in {404, 422}]


async def test_a_commit_that_github_does_not_know_yet_gets_its_gate(bot, github):
    github.state.announced_before = LATE
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    assert gate(bot, pull.head_sha) is None
    assert ("POST", 422) in refused(github)
    await bot.settle(horizon=60)
    assert gate(bot, pull.head_sha) == (None, "waiting for tpu")
    await finish(bot, github, L4)
    await bot.settle(horizon=60)
    assert gate(bot, pull.head_sha) == ("success", "1 blocking backend passed")


async def test_a_commit_of_a_merge_queue_that_is_not_known_yet_gets_its_gate(bot, github, pull):
    await finish(bot, github, L4)
    github.state.announced_before = LATE
    queued = await github.push(UPSTREAM, "queue", message="merge")
    await bot.send("merge_group", group(github.state.repo(UPSTREAM), queued, pull.number))
    await bot.settle()
    assert gate(bot, queued) is None
    await bot.settle(horizon=60)
    assert gate(bot, queued) == ("success", "1 blocking backend passed")


async def test_a_pull_request_that_is_not_known_yet_gets_its_comment(bot, github):
    github.state.announced_before = LATE
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(bot.dispatch(L2), conclusion="failure")
    await bot.settle(horizon=90)
    assert len(github.comments(pull)) == 1


async def test_a_task_that_does_not_know_how_old_the_object_is_goes_by_its_own_age(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.wait(600)
    lost = github.faults.add(
        method="POST", path=f"/issues/{pull.number}/comments$", status=404, body={"message": "Not Found"}
    )
    await bot.report(bot.dispatch(L2), conclusion="failure")
    await bot.settle(horizon=90)
    assert lost.times == 0
    assert len(github.comments(pull)) == 1


async def test_a_commit_that_never_becomes_known_is_given_up_after_minutes_not_seconds(bot, github):
    github.state.announced_before = 3_600_000
    pull = await github.open_pull(UPSTREAM)
    await bot.wait(110)
    tries = len(refused(github))
    assert 6 <= tries <= 40  # of two check runs
    await bot.wait(180)
    last = len(refused(github))
    await bot.wait(600)
    assert len(refused(github)) == last <= tries + 8
    assert gate(bot, pull.head_sha) is None


@pytest.mark.parametrize("status", [403, 410])
async def test_a_final_refusal_is_not_tried_again(bot, github, status):
    github.faults.add(method="POST", path="/check-runs", status=status, body={"message": "no"}, times=100)
    await github.open_pull(UPSTREAM)
    await bot.wait(20)

    def tries():
        return len([call for call in github.calls if call.method == "POST" and call.status == status])

    before = tries()
    assert before > 0
    await bot.wait(100)
    assert tries() == before
