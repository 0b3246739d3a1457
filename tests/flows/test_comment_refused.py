"""An App that may not write on pull requests: no comment, said once on /admin; checks and gate go on."""

from __future__ import annotations

import aiohttp
import pytest

from tests.harness import L4, UPSTREAM

pytestmark = pytest.mark.logic


def tries(github):
    """How often the App asked to write a comment."""
    return sum(
        call.method == "POST"
        and call.path.endswith("/access_tokens")
        and (call.body or {}).get("permissions") == {"pull_requests": "write"}
        for call in github.calls
    )


def granting(github, level):
    for installation in github.state.installations.values():
        installation.permissions = dict(installation.permissions) | {"pull_requests": level}


async def failed(bot, github):
    pull = await github.open_pull(UPSTREAM, author="octocat")
    await bot.settle()
    assert (await bot.report(bot.dispatch(L4), conclusion="failure"))[0] == 200
    await bot.settle(horizon=60)
    return pull


async def dead(bot):
    return [row for row in await bot.rows("task") if row["state"] == "dead"]


async def admin_page(bot):
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        token = {"token": "an admin token of ours"}
        async with browser.post(f"{bot.url}/admin/sign-in", data=token) as answer:
            return await answer.text()


async def test_checks_and_gate_go_on_and_admin_says_why_there_is_no_comment(bot, github):
    granting(github, "read")
    pull = await failed(bot, github)
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / gate"][:2] == ("completed", "failure")
    assert bot.checks(UPSTREAM, pull.head_sha)["oot / tpu"][:2] == ("completed", "failure")
    assert github.comments(pull) == []
    assert await dead(bot) == []
    asked = tries(github)
    assert asked > 0
    await failed(bot, github)
    assert tries(github) == asked  # once an hour is enough to notice
    page = await admin_page(bot)
    assert f"No comment is written on <b>{UPSTREAM}</b>" in page
    assert "pull_requests: write" in page


async def test_once_it_is_granted_comments_are_written(bot, github):
    granting(github, "read")
    pull = await failed(bot, github)
    granting(github, "write")
    (installation,) = (one for one in github.state.installations.values() if one.account == "pytorch")
    await github.announce_installation(installation, "new_permissions_accepted")
    await bot.settle(horizon=120)
    assert len(github.comments(pull)) == 1
    assert "No comment is written" not in await admin_page(bot)


async def test_without_any_event_it_is_tried_again_after_an_hour(bot, github):
    granting(github, "read")
    await failed(bot, github)
    granting(github, "write")
    bot.clock.advance(3700)
    pull = await failed(bot, github)
    assert len(github.comments(pull)) == 1
