"""The gate on a merge queue's commit."""

from __future__ import annotations

import pytest

from tests.flows.scenarios import finish, gate
from tests.harness import L4, UPSTREAM
from tests.serving import SQLITE

pytestmark = SQLITE  # texts and their times: the databases have tests of their own


def group(repo, sha, number, action="checks_requested", **fields):
    return {
        "action": action,
        "repository": {"id": repo.id, "full_name": repo.full_name, "private": False},
        "merge_group": {
            "head_sha": sha,
            "head_ref": f"refs/heads/gh-readonly-queue/main/pr-{number}-{'b' * 40}",
            "base_sha": repo.branches["main"],
            "base_ref": "refs/heads/main",
        } | fields,
    }  # fmt: skip


@pytest.fixture
async def queued(github, pull):
    """A commit of the merge queue."""
    return await github.push(UPSTREAM, "queue", message="merge")


async def test_on_a_merge_queues_commit_it_repeats_the_verdict_of_the_pull_request(bot, github, pull, queued):
    repo = github.state.repo(UPSTREAM)
    await bot.send("merge_group", group(repo, queued, pull.number))
    await bot.settle()
    assert gate(bot, queued) == (None, "waiting for tpu")
    assert list(bot.checks(UPSTREAM, queued)) == ["oot / gate"]
    await finish(bot, github, L4)
    assert gate(bot, queued) == gate(bot, pull.head_sha) == ("success", "1 blocking backend passed")


async def test_all_checks_run_again_on_a_merge_queues_commit_writes_its_gate_again(bot, github, pull, queued):
    await finish(bot, github, L4)
    await bot.send("merge_group", group(github.state.repo(UPSTREAM), queued, pull.number))
    await bot.settle()
    (made,) = github.check_runs(UPSTREAM, queued)
    before = len(github.calls)
    await github.rerequest_suite(UPSTREAM, queued, github.app)
    await bot.settle(horizon=20)
    written = [call.path for call in github.calls[before:] if call.method in {"POST", "PATCH"}]
    assert [path for path in written if "/check-runs" in path] == [f"/repos/{UPSTREAM}/check-runs/{made.id}"]


async def test_a_failure_is_repeated_on_a_merge_queues_commit(bot, github, pull, queued):
    await finish(bot, github, L4, "failure")
    await bot.send("merge_group", group(github.state.repo(UPSTREAM), queued, pull.number))
    await bot.settle()
    assert gate(bot, queued)[0] == "failure"


async def test_a_merge_queues_commit_holds_all_it_builds_on_and_tells_the_worst_of_them(bot, github, pull):
    repo = github.state.repo(UPSTREAM)
    dispatch = bot.dispatch(L4)
    second = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    first_sha, second_sha = [await github.push(UPSTREAM, name, message="merge") for name in ("q1", "q2")]
    await bot.send("merge_group", group(repo, first_sha, pull.number))
    await bot.send("merge_group", group(repo, second_sha, second.number, base_sha=first_sha))
    await finish(bot, github, L4)
    assert gate(bot, second.head_sha)[0] == "success"
    assert gate(bot, second_sha) == (None, "waiting for tpu")
    await bot.report(dispatch, conclusion="failure", run_id="5")
    await bot.settle(horizon=20)
    assert gate(bot, first_sha)[0] == gate(bot, second_sha)[0] == "failure"
    assert f"/pull/{pull.number}" in next(iter(github.check_runs(UPSTREAM, second_sha))).details_url
    assert gate(bot, second.head_sha)[0] == "success"


async def test_a_queue_rebuilt_the_other_way_round_comes_to_rest(bot, github, pull):
    repo = github.state.repo(UPSTREAM)
    second = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    old_first, old_second, first, last = [
        await github.push(UPSTREAM, f"q{n}", message="merge") for n in range(4)
    ]
    await bot.send("merge_group", group(repo, old_first, pull.number))
    await bot.send("merge_group", group(repo, old_second, second.number, base_sha=old_first))
    # the events that both old ones have ended were not delivered
    await bot.send("merge_group", group(repo, first, second.number))
    await bot.send("merge_group", group(repo, last, pull.number, base_sha=first))
    await bot.settle(horizon=20)
    before = len(await bot.rows("task"))
    for _ in range(20):
        await bot.worker.step()
    assert len(await bot.rows("task")) == before
    await finish(bot, github, L4)
    assert gate(bot, first)[0] == "success"
    assert gate(bot, last) == (None, "waiting for tpu")


async def test_a_merge_queues_commit_on_an_unknown_pull_request_does_not_turn_green(
    bot, github, pull, queued
):
    repo = github.state.repo(UPSTREAM)
    await finish(bot, github, L4)
    await bot.send("merge_group", group(repo, "c" * 40, 4711))
    await bot.send("merge_group", group(repo, queued, pull.number, base_sha="c" * 40))
    await bot.settle(horizon=20)
    assert gate(bot, queued)[0] is None


async def test_a_merge_queues_commit_on_an_unknown_commit_waits_until_the_group_under_it_is_known(
    bot, github, pull, queued
):
    repo = github.state.repo(UPSTREAM)
    second = await github.open_pull(UPSTREAM, author="octocat")
    under = await github.push(UPSTREAM, "under", message="merge")
    await bot.settle()
    dispatch = bot.dispatch(L4, 0)
    await finish(bot, github, L4)
    await bot.send("merge_group", group(repo, queued, second.number, base_sha=under))
    await bot.settle(horizon=20)
    assert gate(bot, second.head_sha)[0] == "success"
    assert gate(bot, queued) == (None, "waiting: the commit it builds on is in no group that is known")
    await bot.send("merge_group", group(repo, under, pull.number))
    await bot.settle(horizon=20)
    assert gate(bot, queued) == (None, "waiting for tpu")
    await bot.report(dispatch, conclusion="failure", run_id="5")
    await bot.settle(horizon=20)
    assert gate(bot, queued)[0] == "failure"


async def test_a_merge_queues_commit_on_the_base_branch_is_green_once_github_or_a_push_says_so(
    bot, github, pull, queued
):
    repo = github.state.repo(UPSTREAM)
    await finish(bot, github, L4)
    fault = github.faults.add(method="HOOK", drop=True, times=100)
    merged = await github.push(UPSTREAM, "main", message="somebody else's")
    github.faults.waiting.remove(fault)
    fault = github.faults.add(method="GET", path=r"/compare/", status=403, body={"message": "No"}, times=100)
    await bot.send("merge_group", group(repo, queued, pull.number, base_sha=merged))
    await bot.settle(horizon=20)
    assert gate(bot, queued)[0] is None
    github.faults.waiting.remove(fault)
    await bot.wait(660)
    assert gate(bot, queued) == ("success", "1 blocking backend passed")
    asked = len([call for call in github.calls if "/compare/" in call.path])
    next_group = await github.push(UPSTREAM, "next", message="merge")
    tip = await github.push(UPSTREAM, "main", message="and another")
    await bot.send("merge_group", group(repo, next_group, pull.number, base_sha=tip))
    await bot.settle(horizon=20)
    assert gate(bot, next_group)[0] == "success"
    assert len([call for call in github.calls if "/compare/" in call.path]) == asked, "a push told"


async def test_a_push_that_comes_after_the_group_tells_what_the_group_builds_on(bot, github, pull, queued):
    await finish(bot, github, L4)
    github.faults.add(method="GET", path=r"/compare/", status=502, times=1)
    hook, bot.app.webhook_url = bot.app.webhook_url, "http://127.0.0.1:9/nobody"
    tip = await github.push(UPSTREAM, "main", message="somebody else's")
    bot.app.webhook_url = hook
    await bot.send("merge_group", group(github.state.repo(UPSTREAM), queued, pull.number, base_sha=tip))
    await bot.settle(horizon=20)
    assert gate(bot, queued)[0] is None
    await github.redeliver(next(one for one in reversed(github.deliveries) if one.event == "push"))
    await bot.settle(horizon=20)
    assert gate(bot, queued)[0] == "success"


@pytest.mark.parametrize("reason", ["merged", "dequeued"])
async def test_the_end_of_the_group_under_it_takes_nothing_back(bot, github, pull, queued, reason):
    repo = github.state.repo(UPSTREAM)
    second = await github.open_pull(UPSTREAM, author="octocat")
    under = await github.push(UPSTREAM, "under", message="merge")
    await bot.settle()
    await bot.send("merge_group", group(repo, under, pull.number))
    await bot.send("merge_group", group(repo, queued, second.number, base_sha=under))
    for number in (0, 1):
        run = await github.start_run(L4, event="repository_dispatch", name="CI")
        await bot.report(bot.dispatch(L4, number), run_id=str(run.id))
        await github.finish_run(run, "success")
    await bot.settle(horizon=20)
    assert gate(bot, queued)[0] == "success"
    made = len(github.check_runs(UPSTREAM, queued))
    await bot.send("merge_group", group(repo, under, pull.number, action="destroyed") | {"reason": reason})
    await bot.wait(1300)
    assert gate(bot, queued)[0] == "success"
    assert len(github.check_runs(UPSTREAM, queued)) == made


@pytest.mark.parametrize("base", [None, 7, "", "0" * 40])
async def test_a_merge_group_without_a_base_does_not_turn_green(bot, github, pull, queued, base):
    await finish(bot, github, L4)
    await bot.send("merge_group", group(github.state.repo(UPSTREAM), queued, pull.number, base_sha=base))
    await bot.wait(660)
    assert gate(bot, queued)[0] is None


async def test_an_end_heard_of_before_the_beginning_stays_the_end(bot, github, pull, queued):
    repo = github.state.repo(UPSTREAM)
    for action in ("destroyed", "checks_requested"):
        await bot.send("merge_group", group(repo, queued, pull.number, action=action))
    await bot.settle()
    assert gate(bot, queued) is None
    bot.clock.advance(31 * 24 * 3600)
    await bot.settle()
    assert await bot.rows("oot_merge_group") == []


async def test_a_merge_queues_commit_that_is_gone_is_left_alone(bot, github, pull, queued):
    repo = github.state.repo(UPSTREAM)
    await bot.send("merge_group", group(repo, queued, pull.number))
    await bot.settle()
    gone = group(repo, queued, pull.number, action="destroyed") | {"reason": "dequeued"}
    await bot.send("merge_group", gone)
    await finish(bot, github, L4)
    assert gate(bot, queued)[0] is None
    assert gate(bot, pull.head_sha)[0] == "success"


@pytest.mark.parametrize(
    "fields",
    [
        {"head_ref": "refs/heads/main"},
        {"head_ref": None},
        {"head_sha": 7},
        {"head_ref": "gh-readonly-queue/x"},
    ],
)
async def test_a_merge_group_nobody_can_read_turns_nothing_green(bot, github, pull, queued, fields):
    await bot.send("merge_group", group(github.state.repo(UPSTREAM), queued, pull.number, **fields))
    await bot.settle()
    assert gate(bot, queued) is None
