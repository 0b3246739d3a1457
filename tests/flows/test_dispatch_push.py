"""Dispatches of pushes, deletions of branches, and actions that an entry of its own names."""

from __future__ import annotations

import pytest

from tests.flows.scenarios import (
    dispatched_to,
    states,
)
from tests.harness import L1, L2, L3, L4, UPSTREAM

pytestmark = pytest.mark.logic


PUSHES = f"""
L1: [{{repo: {L1}, events: [push]}}]
L2:
- {{repo: {L2}, events: [pull_request, push], refs: [main, "release/*"]}}
- {{repo: {L3}, events: [push], refs: ["refs/tags/v*"]}}
L4: [{L4}]
"""


@pytest.mark.parametrize(
    ("ref", "backends"),
    [
        ("main", [L1, L2]),
        ("release/2", [L1, L2]),
        ("topic", [L1]),
        ("refs/tags/v1", [L3]),
        ("refs/tags/x", []),
    ],
)
async def test_a_push_goes_to_the_backends_whose_refs_it_matches(bot, github, ref, backends):
    await bot.list_backends(PUSHES)
    sha = await github.push(UPSTREAM, ref)
    await bot.settle()
    assert sorted(dispatched_to(github)) == sorted(backends)
    for dispatch in github.dispatches:
        assert dispatch.event_type == dispatch.client_payload["event_type"] == "push"
        assert dispatch.client_payload["payload"]["after"] == sha
    for row in await bot.rows("oot_dispatch"):
        assert (row["event_type"], row["pr_number"], row["head_sha"]) == ("push", None, sha)
    assert bot.checks(UPSTREAM, sha) == {}


async def test_the_deletion_of_a_branch_is_never_dispatched(bot, github):
    await bot.list_backends(PUSHES)
    await github.push(UPSTREAM, "topic")
    await bot.settle()
    (pushed,) = [one for one in github.deliveries if one.event == "push"]
    gone = pushed.payload | {
        "deleted": True, "created": False, "before": pushed.payload["after"], "after": "0" * 40,
        "commits": [], "head_commit": None,
    }  # fmt: skip
    await github.deliver("push", gone)
    await github.deliver("push", gone | {"deleted": False})
    await bot.settle()
    assert dispatched_to(github) == [L1]


async def test_a_deletion_goes_to_whoever_wants_it_and_nobody_has_to_answer(bot, github):
    await bot.list_backends(
        f"""
L2:
- {{repo: {L1}, events: [push]}}
- {{repo: {L2}, events: [push], deletions: true}}
- {{repo: {L3}, events: [push], refs: [main], deletions: true}}
- {{repo: {L4}, events: [push], refs: ["refs/heads/**", "refs/tags/**"], deletions: true, answers: all}}
""",
    )
    for ref, backends in {"topic": [L2, L4], "refs/tags/v1": [L4]}.items():
        github.dispatches.clear()
        await github.push(UPSTREAM, ref)
        await bot.settle()
        (pushed,) = [one for one in github.deliveries if one.event == "push"][-1:]
        github.dispatches.clear()
        gone = pushed.payload | {
            "deleted": True, "created": False, "before": pushed.payload["after"], "after": "0" * 40,
            "commits": [], "head_commit": None,
        }  # fmt: skip
        await github.deliver("push", gone)
        await bot.settle()
        assert sorted(dispatched_to(github)) == sorted(backends)
        assert bot.dispatch(L4).client_payload["payload"]["deleted"] is True
    told = await bot.report(bot.dispatch(L4))
    assert told == (200, {"ok": True, "status": "completed"})
    (job,) = await bot.rows("oot_workflow_job")
    assert (job["head_sha"], job["flags"]) == (None, {"no_start": True})
    await bot.wait(24 * 3600 + 120)
    ended = {row["state"] for row in await bot.rows("oot_dispatch") if row["action"] == "closed"}
    assert ended == {"sent"}
    assert (await bot.get(f"/oot/{L4}"))[0] == 200


async def test_an_entrys_own_actions_come_before_the_setting(bot, github):
    await bot.list_backends(
        f"L2: [{{repo: {L1}, actions: [opened, ready_for_review]}}, {{repo: {L2}, actions: synchronize}}, {L3}]",
    )
    pull = await github.open_pull(UPSTREAM, draft=True)
    await bot.settle()
    await github.push_commit(pull)
    await bot.settle()
    await github.ready_for_review(pull)
    await bot.settle()
    await github.close(pull)
    await bot.settle()

    def actions(repo):
        told = [one for one in github.dispatches if one.repo.full_name == repo]
        return [one.client_payload["payload"]["action"] for one in told]

    assert actions(L1) == ["opened", "ready_for_review"]
    assert actions(L2) == ["synchronize"]
    assert actions(L3) == ["opened", "synchronize", "ready_for_review", "closed"]


async def test_a_push_elsewhere_is_not_dispatched(bot, github):
    await bot.list_backends(PUSHES)
    await github.push(L2, "main")
    await bot.settle()
    assert dispatched_to(github) == []


async def test_a_result_of_a_push_is_taken_and_a_silent_one_is_said_to_have_never_started(bot, github):
    await bot.list_backends(f"L2: [{{repo: {L2}, events: push}}, {{repo: {L3}, events: push, answers: all}}]")
    await github.push(UPSTREAM)
    await bot.settle()
    assert (await bot.report(bot.dispatch(L2)))[0] == 200
    await bot.wait(24 * 3600 + 120)
    assert (await states(bot, L2), await states(bot, L3)) == (["sent"], ["never_started"])
