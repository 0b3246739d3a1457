"""Upstream is renamed or transferred: that is said, and what was missed is dispatched once the settings have its name."""

from __future__ import annotations

import aiohttp
import pytest

from tests.harness import L4, UPSTREAM, replace, running
from tests.ops.test_admin_pages import sign_in
from tests.serving import SQLITE

pytestmark = SQLITE
MOVED = "pytorch/moved"


@pytest.fixture
def start(settings, github, issuer, clock):
    """Start a bot on the same database, whose settings name upstream so."""

    def begin(upstream):
        chosen = replace(settings, upstream_repo=(upstream,))
        return running(chosen, github=github, issuer=issuer, app=github.app, clock=clock)

    return begin


def rename(github):
    """Rename upstream."""
    moved = github.state.repos[MOVED] = github.state.repos.pop(UPSTREAM)
    moved.name = MOVED.partition("/")[2]


def dispatched(github):
    payloads = [one.client_payload["payload"] for one in github.dispatches if one.repo.full_name == L4]
    return [payload["number"] for payload in payloads]


async def test_that_upstream_was_renamed_is_said_until_the_settings_have_its_name(
    start, github, clock, caplog
):
    async with start(UPSTREAM) as bot:
        await github.open_pull(UPSTREAM)
        await bot.settle()
        rename(github)
        clock.advance(60)
        await github.open_pull(MOVED)
        await bot.settle()
        status, ready = await bot.get("/readyz")
        words = f"{UPSTREAM} is {MOVED} now, and nothing of it is dispatched: write its new name into UPSTREAM_REPO"
        assert (status, ready["missing"]) == (503, [f"upstream: {words}"])
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
            assert words in await sign_in(bot, browser)
    async with start(MOVED) as bot:
        await bot.wait(700)
        status, ready = await bot.get("/readyz")
        assert (status, ready["notes"]) == (200, [])


async def test_that_upstream_is_out_of_reach_is_said(start, github, clock):
    """It was transferred to an account without the App: no delivery tells."""
    async with start(UPSTREAM) as bot:
        await github.open_pull(UPSTREAM)
        await bot.wait(700)
        assert (await bot.get("/readyz"))[1]["notes"] == []
        rename(github)
        await bot.wait(3700)
        _, ready = await bot.get("/readyz")
        assert any(note.startswith(f"upstream: {UPSTREAM} cannot be reached: ") for note in ready["notes"])


async def test_what_was_opened_while_the_settings_had_the_old_name_is_dispatched_later(start, github, clock):
    async with start(UPSTREAM) as bot:
        before = await github.open_pull(UPSTREAM)
        await bot.settle()
        rename(github)
        clock.advance(60)
        missed = await github.open_pull(MOVED)
        await bot.wait(700)
        assert dispatched(github) == [before.number]
    async with start(MOVED) as bot:
        await bot.wait(1300)
        assert dispatched(github).count(missed.number) == 1
