"""The gate where pull requests share a commit, a commit is overtaken, or the base branch changes."""

from __future__ import annotations

import pytest

from tests.flows.scenarios import finish, gate
from tests.harness import L4, UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE  # texts and their times: the databases have tests of their own


async def test_of_two_pull_requests_with_one_head_the_first_decides(bot, github, pull):
    await finish(bot, github, L4, "failure")
    assert gate(bot, pull.head_sha)[0] == "failure"
    second = await github.open_pull(UPSTREAM, author="mallory")
    second.head_sha = pull.head_sha
    await github.edit_title(second, "the same commit once more")
    await bot.settle()
    await github.close(second)
    await bot.settle()
    assert gate(bot, pull.head_sha)[0] == "failure"


@pytest.mark.parametrize(("author", "shown"), [("octocat", None), ("mallory", "success")])
async def test_a_gate_found_for_one_base_branch_does_not_pass_for_its_authors_other_one(
    bot, github, author, shown
):
    await github.push(UPSTREAM, "release", message="a branch")
    pull = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    await finish(bot, github, L4)
    assert gate(bot, pull.head_sha)[0] == "success"
    bot.clock.advance(60)
    second = await github.open_pull(UPSTREAM, author=author)
    second.head_sha = pull.head_sha
    await github.retarget(second, "release")
    await bot.settle(horizon=20)
    assert gate(bot, pull.head_sha)[0] == shown
    bot.clock.advance(60)
    await finish(bot, github, L4, "failure")
    await bot.settle(horizon=20)
    assert gate(bot, pull.head_sha)[0] == (shown or "failure")
    bot.clock.advance(60)
    await github.close(second)
    await bot.settle(horizon=20)
    assert gate(bot, pull.head_sha)[0] == "success"


async def test_nobody_takes_a_gate_by_pushing_anothers_commit_to_an_older_pull_request(bot, github):
    await bot.list_backends(f"L4:\n  tpu: {{repo: {L4}, oncalls: [dave], policy: trusted}}\n")
    older = await github.open_pull(UPSTREAM, author="mallory", author_association="NONE")
    await bot.settle()
    pull = await github.open_pull(UPSTREAM, author="octocat", author_association="MEMBER")
    await bot.settle()
    await finish(bot, github, L4)
    assert gate(bot, pull.head_sha)[0] == "success"
    bot.clock.advance(1)
    await github.push_commit(older, commit=pull.head_sha)
    await bot.settle(horizon=20)
    assert gate(bot, pull.head_sha)[0] == "success"
    bot.clock.advance(1)
    await github.push_commit(pull)
    await bot.settle(horizon=20)
    assert gate(bot, older.head_sha) == (
        None,
        "needs oot/ok-to-test",
    )  # who moved on has left it to the other


@pytest.mark.parametrize("leaves", ["closed", "moved"])
async def test_where_the_first_of_two_leaves_their_commit_the_second_decides(bot, github, pull, leaves):
    second = await github.open_pull(UPSTREAM, author="mallory")
    second.head_sha = pull.head_sha
    for act in (github.close, github.reopen):
        bot.clock.advance(1)
        await act(second)
        await bot.settle()
    await finish(bot, github, L4)
    assert gate(bot, pull.head_sha) == (None, "waiting for tpu")
    bot.clock.advance(1)
    await (github.close(pull) if leaves == "closed" else github.push_commit(pull))
    await bot.settle(horizon=20)
    assert gate(bot, second.head_sha)[0] == "success"


async def test_a_head_that_was_overtaken_before_anything_was_said_of_it_stays_bare(bot, github):
    pull = await github.open_pull(UPSTREAM, author="octocat")
    first = pull.head_sha
    for _ in range(3):
        bot.clock.advance(1)
        await github.push_commit(pull)
    await bot.settle()
    assert bot.checks(UPSTREAM, first) == {}
    assert gate(bot, pull.head_sha) == (None, "waiting for tpu")
    written = [call for call in github.calls if call.path.endswith("/check-runs")]
    assert len(written) == 2


async def test_what_was_begun_is_concluded_however_often_the_head_moves_on(bot, github, pull):
    first, dispatch = pull.head_sha, bot.dispatch(L4)
    for _ in range(11):
        bot.clock.advance(1)
        await github.push_commit(pull)
    await bot.settle()
    await bot.report(dispatch, conclusion="failure")
    await bot.settle(horizon=20)
    assert bot.checks(UPSTREAM, first)["oot / tpu"][:2] == ("completed", "failure")
    assert gate(bot, first)[0] == "failure"


async def test_the_gate_of_an_overtaken_head_follows_what_still_runs_there(bot, github, pull):
    first, dispatch = pull.head_sha, bot.dispatch(L4)
    await github.push_commit(pull)
    await bot.settle()
    await bot.report(dispatch, conclusion="failure")
    await bot.settle()
    assert gate(bot, first)[0] == "failure"
    assert gate(bot, pull.head_sha) == (None, "waiting for tpu")


async def test_a_verdict_counts_for_the_base_branch_it_was_found_on(bot, github, pull):
    github.set_permission(UPSTREAM, "wendy", "write")
    await github.push(UPSTREAM, "release", message="a branch")
    await finish(bot, github, L4)
    assert gate(bot, pull.head_sha)[0] == "success"
    bot.clock.advance(60)
    await github.retarget(pull, "release")
    await bot.settle(horizon=20)
    sent = bot.dispatch(L4).client_payload["payload"]
    assert (sent["action"], sent["pull_request"]["base"]["ref"]) == ("edited", "release")
    assert gate(bot, pull.head_sha) == (None, "waiting for tpu")
    await finish(bot, github, L4, "failure")
    assert gate(bot, pull.head_sha)[0] == "failure"
    bot.clock.advance(60)
    await github.comment(pull, "/oot ignore tpu not for a release", "wendy")
    await bot.settle(horizon=20)
    assert gate(bot, pull.head_sha)[0] == "success"
    bot.clock.advance(60)
    await github.push(UPSTREAM, "next", message="a branch")
    await github.retarget(pull, "next")
    await bot.settle(horizon=20)
    assert gate(bot, pull.head_sha) == (None, "waiting for tpu")


@pytest.mark.parametrize("meanwhile", ["failure", None])
async def test_back_on_its_first_base_branch_the_check_run_shows_what_was_found_there(bot, github, meanwhile):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await github.push(UPSTREAM, "release", message="a branch")
    await finish(bot, github, L4)
    for base in ("release", "main"):
        bot.clock.advance(60)
        await github.retarget(pull, base)
        await bot.settle(horizon=20)
        if base == "release" and meanwhile:
            await finish(bot, github, L4, meanwhile)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("completed", "success")
    assert gate(bot, pull.head_sha)[0] == "success"
    written = len([call for call in github.calls if "/check-runs" in call.path])
    bot.clock.advance(60)
    await github.label(pull, "anything")
    await bot.settle(horizon=20)
    assert len([call for call in github.calls if "/check-runs" in call.path]) == written
