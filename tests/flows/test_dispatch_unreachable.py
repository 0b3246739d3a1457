"""Dispatches to backends without the App, suspended, archived or renamed."""

from __future__ import annotations

import pytest

from tests.flows.scenarios import (
    dispatched_to,
    posts,
    reasons,
    states,
)
from tests.harness import L1, L2, L3, L4, UPSTREAM

pytestmark = pytest.mark.logic


async def test_a_suspended_app_is_said_to_be_suspended(bot, github):
    github.suspend(L4, github.app)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    status, conclusion, title = bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"]
    assert (status, conclusion) == ("completed", "failure")
    assert "suspended" in title
    await bot.wait(3600)
    assert await states(bot, L4) == ["not_installed"]
    assert dispatched_to(github, L4) == []


async def test_an_app_suspended_while_its_token_is_held_is_said_to_be_suspended(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    github.suspend(L4, github.app)
    bot.clock.advance(5)
    await github.push_commit(pull)
    await bot.settle()
    assert (await states(bot, L4))[-1] == "not_installed"
    assert "suspended" in (await reasons(bot, L4))[-1]


async def test_an_archived_backend_is_said_to_be_archived_and_not_asked_again(bot, github):
    github.archive(L4)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][1] == "failure"
    assert "archived" in bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][2]
    await bot.wait(3600)
    assert posts(github, L4) == [403]


@pytest.mark.parametrize("known", [False, True])
async def test_a_renamed_backend_is_said_to_be_renamed(bot, github, known):
    if known:
        await github.open_pull(UPSTREAM)
        await bot.settle()
        bot.clock.advance(3600)  # the token's end, and that of what is believed about its installation
    moved = {"message": "Moved Permanently"}
    github.faults.add(method="GET", path=rf"{L4}/installation$", status=301, body=moved, times=10)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    assert (await states(bot, L4))[-1] == "failed"
    assert "renamed" in bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][2]
    assert "install" not in (await reasons(bot, L4))[-1]


@pytest.mark.parametrize("how", ["created", "added", "unsuspend"])
async def test_once_the_app_is_there_open_heads_are_dispatched_again(bot, github, how):
    if how == "unsuspend":
        github.suspend(L4, github.app)
    else:
        github.uninstall(L4, github.app)
    closed, pull = await github.open_pull(UPSTREAM), await github.open_pull(UPSTREAM)
    await bot.settle()
    await github.close(closed)
    await bot.settle()
    assert dispatched_to(github, L4) == []
    if how == "unsuspend":
        github.suspend(L4, github.app, suspended=False)
    installation = github.install(L4, github.app)
    await github.announce_installation(installation, how, github.state.repo(L4))
    await github.announce_installation(installation, how, github.state.repo(L4))
    await bot.settle(horizon=30)
    (sent,) = [one for one in github.dispatches if one.repo.full_name == L4]
    assert sent.client_payload["payload"]["pull_request"]["head"]["sha"] == pull.head_sha
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("queued", None)
    assert (await bot.report(sent, status="in_progress"))[0] == 200


async def test_a_backend_dispatched_to_again_has_its_present_level(bot, github):
    await bot.list_backends(f"L2: [{L4}]\n")
    github.uninstall(L4, github.app)
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.list_backends(f"L4: {{tpu: {{{L4}: [dave]}}}}\n")
    installation = github.install(L4, github.app)
    await github.announce_installation(installation, "created", github.state.repo(L4))
    await bot.settle(horizon=30)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("queued", None)
    await bot.report(bot.dispatch(L4))
    assert [row["downstream_repo_level"] for row in await bot.rows("oot_workflow_job")] == [4]


async def test_an_app_installed_again_is_found_though_its_old_installation_is_remembered(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    for name in (L2, L3, L4):
        github.uninstall(name, github.app)
    for name in (L2, L3, L4):
        github.install(name, github.app)
    await github.open_pull(UPSTREAM)
    await bot.settle()
    assert len(dispatched_to(github, L4)) == 2


async def test_a_pinned_backend_gets_dispatches_only_under_its_own_id(bot, github):
    right = github.state.repo(L2).id
    await bot.list_backends(
        f"L2:\n- {{repo: {L2}, repository_id: {right}}}\n- {{repo: {L1}, repository_id: 5}}\n"
    )
    await github.open_pull(UPSTREAM)
    await bot.settle()
    assert dispatched_to(github) == [L2]
    assert await states(bot, L1) == ["failed"]
    assert "repository_id 5" in (await reasons(bot, L1))[0]
