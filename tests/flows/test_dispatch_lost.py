"""Dispatches whose answer was lost: signs of arrival, runs of others; sending twice is better than never."""

from __future__ import annotations

import pytest

from tests.flows.scenarios import BY_WORKFLOW, READS_INPUTS
from tests.harness import L2, L4, UPSTREAM, report_body
from tests.serving import SQLITE

pytestmark = SQLITE


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
