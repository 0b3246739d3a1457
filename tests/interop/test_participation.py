"""Who may report and what is dispatched: today's audience, callers nobody listed, pushes, the end of a draft."""

from __future__ import annotations

import pytest

from tests.harness import L1, L2, L4, UPSTREAM
from tests.samples import nightly
from tests.serving import SQLITE

pytestmark = [pytest.mark.logic, SQLITE]

WITH_AND_WITHOUT = pytest.mark.parametrize("preset", ["crcr", nightly(None)])  # see test_differences
AUDIENCE = "pytorch-cross-repo-ci-relay"


async def dispatched(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    return pull


@WITH_AND_WITHOUT
async def test_todays_audience_is_accepted_beside_ours(bot, github, preset):
    await dispatched(bot, github)
    to_l2 = bot.dispatch(L2)
    ours = await bot.report(to_l2, status="in_progress", claims={"audience": "ootbot"})
    theirs = await bot.report(to_l2, claims={"audience": AUDIENCE})
    assert ours[0] == 200
    assert theirs[0] == (200 if preset else 401)


@WITH_AND_WITHOUT
@pytest.mark.parametrize("caller", [L1, "stranger/fork"])
async def test_whoever_may_not_report_is_ignored(bot, github, caller, preset):
    await dispatched(bot, github)
    status, answer = await bot.report(bot.dispatch(L2), claims={"repository": caller})
    assert (status, answer.get("status")) == ((200, "ignored") if preset else (403, None))
    assert await bot.rows("oot_workflow_job") == []


@WITH_AND_WITHOUT
async def test_a_push_goes_to_whoever_names_no_events(bot, github, preset):
    await github.push(UPSTREAM, "main", message="a change")
    await bot.settle()
    assert [dispatch.event_type for dispatch in github.dispatches] == ["push"] * (4 if preset else 0)
    _, allowlist = await bot.get("/api/oot/allowlist")
    events = ["pull_request", "push"] if preset else ["pull_request"]
    assert [entry["events"] for entry in allowlist["entries"]] == [events] * 4


@WITH_AND_WITHOUT
async def test_the_end_of_a_draft_is_no_second_run(bot, github, preset):
    pull = await github.open_pull(UPSTREAM, draft=True)
    await bot.settle()
    await github.ready_for_review(pull)
    await bot.settle()
    actions = ["opened"] if preset else ["opened", "ready_for_review"]
    assert pull_actions(github) == actions
    await github.push(UPSTREAM, "release", message="a branch")
    await github.retarget(pull, "release")
    await bot.settle()
    assert pull_actions(github) == [*actions, "edited"]  # results for another branch say nothing


def pull_actions(github):
    """Return the actions of the pull request that one backend was told."""
    told = [
        each for each in github.dispatches if each.repo.full_name == L4 and each.event_type == "pull_request"
    ]
    return [each.client_payload["payload"]["action"] for each in told]
