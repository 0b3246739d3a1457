"""GitHub is gone, its answers are lost, or it does not know everywhere yet what it has announced."""

from __future__ import annotations

import pytest

from tests.flows.scenarios import BY_WORKFLOW, READS_INPUTS, finish, gate
from tests.flows.test_gate_of_merge_queues import group
from tests.harness import L2, L4, UPSTREAM, report_body
from tests.serving import SQLITE

pytestmark = SQLITE


# What if GitHub is gone for hours? It is not asked too often meanwhile, and soon after its return all is written.


HOUR = 3600


async def passing(bot, seconds, step=10):
    """Let time pass, the timetable's tasks running as it does."""
    for _ in range(round(seconds / step)):
        await bot.wait(step)


def made_check(call):
    return call.method == "POST" and call.path.endswith("/check-runs")


async def test_within_two_minutes_of_githubs_return_everything_is_written_gates_first(bot, github):
    fault = github.faults.add(method="GET|POST", status=502, times=10**9)
    pull = await github.open_pull(UPSTREAM)
    await bot.wait(6 * HOUR)
    in_vain = len(github.calls)
    assert in_vain < 6 * 60 * 3, "GitHub is asked more than thrice a minute"
    github.faults.waiting.remove(fault)
    await passing(bot, 70)
    written = [call.body["name"] for call in github.calls[in_vain:] if made_check(call)]
    assert written == ["oot / gate", "oot / tpu"]
    await passing(bot, 30)
    assert {row["state"] for row in await bot.rows("oot_dispatch")} == {"sent"}
    assert len(github.dispatches) == 4
    assert set(bot.checks(UPSTREAM, pull.head_sha)) == {"oot / gate", "oot / tpu"}


async def test_what_github_asked_us_to_wait_for_is_not_hastened(bot, github):
    github.faults.add(method="POST", path="/check-runs$", status=429, headers={"Retry-After": "600"})
    github.faults.add(method="POST", path="/dispatches$", status=502, times=1)
    await github.open_pull(UPSTREAM)
    await bot.settle()
    before = len(github.calls)
    await passing(bot, 500)
    assert not [call for call in github.calls[before:] if made_check(call)]


# GitHub announces a commit, pull request or run before all of its servers know it: what it refuses is tried again.


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


# Dispatches whose answer was lost: signs of arrival, runs of others; sending twice is better than never.


def lose(github, repo=L4, **options):
    """Lose the next dispatch on its way, or with when="after" only the answer to it."""
    github.faults.add(method="POST", path=rf"{repo}/.*dispatches$", **{"status": 502} | options)


def dispatched_to(github, repo=L4):
    """Return the pull requests dispatched to a backend."""
    sent = [one.client_payload for one in github.dispatches if one.repo.full_name == repo]
    return [one["payload"]["pull_request"]["number"] for one in sent if "payload" in one]


async def run_of(github, dispatch, **options):
    """The run that GitHub starts of a dispatch."""
    about = {"display_title": dispatch.event_type, "actor": dispatch.app.bot_login}
    return await github.start_run(dispatch.repo, name="CI", **about | options)


async def test_the_run_of_an_earlier_dispatch_is_not_taken_for_a_lost_one(bot, github):
    """A's run is made after B was lost on its way."""
    await github.open_pull(UPSTREAM)
    await bot.settle()
    bot.clock.advance(1)
    lose(github)
    await github.open_pull(UPSTREAM)
    await bot.settle()
    bot.clock.advance(2)
    await run_of(github, bot.dispatch(L4))
    await bot.settle(horizon=120)
    assert dispatched_to(github) == [1, 2]


async def test_the_run_of_an_earlier_dispatch_by_workflow_is_not_pinned_on_a_lost_one(bot, github):
    github.set_file(L4, ".github/workflows/upstream.yml", READS_INPUTS)
    await bot.list_backends(BY_WORKFLOW)
    lose(github)
    lose(github, status=429, headers={"Retry-After": "1"}, times=1)
    first, second = await github.open_pull(UPSTREAM), await github.open_pull(UPSTREAM)
    await bot.settle(horizon=240)
    rows = {row["pr_number"]: row for row in await bot.rows("oot_dispatch")}
    assert {row["state"] for row in rows.values()} == {"sent"}
    assert rows[first.number]["run_id"] != rows[second.number]["run_id"]
    assert len(github.dispatches) == 2


@pytest.mark.parametrize("whose", [{"actor": "carol"}, {"display_title": "push"}], ids=["a person", "a push"])
async def test_somebody_elses_run_is_not_taken_for_ours(bot, github, whose):
    lose(github)
    await github.open_pull(UPSTREAM)
    await bot.settle()
    about = {"display_title": "pull_request", "actor": github.app.bot_login} | whose
    await github.start_run(L4, name="CI", **about)
    await bot.settle(horizon=120)
    assert dispatched_to(github) == [1]


async def test_our_own_run_ends_the_search(bot, github):
    lose(github, when="after")
    github.on_dispatch = lambda dispatch: run_of(github, dispatch)
    await github.open_pull(UPSTREAM)
    await bot.settle(horizon=120)
    assert dispatched_to(github) == [1]
    assert {row["state"] for row in await bot.rows("oot_dispatch")} == {"sent"}


async def test_an_attempt_that_arrived_is_found_though_a_later_one_was_told_to_wait(bot, github):
    lose(github, when="after")
    github.faults.add(method="GET", path=rf"{L4}/actions/runs", status=403, times=1)
    lose(github, status=429, headers={"Retry-After": "30"})

    async def begin(dispatch):
        if dispatch.repo.full_name == L4:
            await run_of(github, dispatch)

    github.on_dispatch = begin
    await github.open_pull(UPSTREAM)
    await bot.settle(horizon=240)
    assert dispatched_to(github) == [1]


async def test_a_refusal_of_a_fresh_token_may_pass(bot, github):
    body = {"message": "Resource not accessible by integration"}
    lose(github, status=403, body=body, times=2)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle(horizon=20)
    assert dispatched_to(github) == [1]
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("queued", None)


async def test_a_refusal_that_stays_is_believed_soon_and_what_it_refused_was_never_sent(bot, github):
    body = {"message": "Resource not accessible by integration"}
    lose(github, status=403, body=body, times=100)
    await github.open_pull(UPSTREAM)
    await bot.wait(600)
    (row,) = [row for row in await bot.rows("oot_dispatch") if row["backend"] == L4]
    assert (row["state"], row["attempts"], row["dispatched_at"]) == ("not_installed", 3, None)


async def test_a_report_on_what_was_never_sent_is_refused(bot, github):
    await bot.list_backends(f"L2: [{{repo: {L2}, callback_token: optional, policy: trusted}}, {L4}]")
    await github.open_pull(UPSTREAM, author="mallory", author_association="NONE")
    await bot.settle()
    sent = bot.dispatch(L4)
    body = report_body(sent, status="completed", conclusion="success", job="a", run_id="900", attempt=1)
    body["callback_token"] = None
    headers = {"Authorization": f"Bearer {bot.issuer.mint(repository=L2, run_id='900')}"}
    status, answer = await bot.request("POST", "/api/oot/callback", json=body, headers=headers)
    assert (status, answer["error"]) == (404, "unknown_dispatch")
    assert await bot.rows("oot_workflow_job") == []
