"""How long is the administrator signed in, and what ends it?"""

import contextlib

import aiohttp
import pytest

from tests.harness import replace, running
from tests.ops.test_admin_pages import TOKEN, get, key_of, sign_in
from tests.serving import SQLITE


@contextlib.asynccontextmanager
async def a_browser():
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        yield session


@pytest.fixture
async def browser():
    async with a_browser() as session:
        yield session


def copied(browser):
    """The cookie, as another person may have copied it."""
    (one,) = browser.cookie_jar
    return {"Cookie": f"{one.key}={one.value}"}


async def sign_out(bot, browser):
    key = key_of(await get(bot, browser, "/admin"))
    async with browser.post(f"{bot.url}/admin/sign-out", data={"key": key}) as answer:
        return answer.status, await answer.text()


async def test_signing_out_ends_every_session_and_says_so(bot, browser):
    async with a_browser() as elsewhere:
        await sign_in(bot, elsewhere)
        bot.clock.advance(60)
        await sign_in(bot, browser)
        stolen = copied(browser)
        assert (await bot.get("/admin", headers=stolen))[0] == 200
        _, page = await sign_out(bot, browser)
        assert "All sessions have ended" in page
        for path in ("/admin", "/api/admin/tasks"):
            assert (await bot.get(path, headers=stolen))[0] == 401, path
            assert (await bot.get(path, headers=copied(elsewhere)))[0] == 401, path


@pytest.mark.logic
async def test_whoever_knows_the_token_can_sign_in_again_at_once(bot, browser):
    await sign_in(bot, browser)
    stolen = copied(browser)
    await sign_out(bot, browser)
    await sign_in(bot, browser)  # within the same millisecond
    await get(bot, browser, "/admin")
    assert (await bot.get("/admin", headers=stolen))[0] == 401


@SQLITE
async def test_a_session_that_ended_stays_ended_after_a_restart(settings, github, issuer, clock, browser):
    start = {"github": github, "issuer": issuer, "app": github.app, "clock": clock}
    async with running(settings, **start) as bot:
        await sign_in(bot, browser)
        stolen = copied(browser)
        await sign_out(bot, browser)
    async with running(settings, **start) as bot:
        assert (await bot.get("/admin", headers=stolen))[0] == 401


@SQLITE
async def test_another_token_has_sessions_of_its_own(settings, github, issuer, clock, browser):
    start = {"github": github, "issuer": issuer, "app": github.app, "clock": clock}
    async with running(settings, **start) as bot:
        await sign_in(bot, browser)
        stolen = copied(browser)
    async with running(replace(settings, admin_token="another token of ours"), **start) as bot:
        assert (await bot.get("/admin", headers=stolen))[0] == 401
        async with bot.http.post(f"{bot.url}/admin/sign-in", data=TOKEN) as answer:
            assert answer.status == 401


@pytest.mark.logic
async def test_nobody_signs_out_but_who_signed_in(bot, browser):
    await sign_in(bot, browser)
    async with bot.http.post(f"{bot.url}/admin/sign-out", data={"key": "0" * 64}) as answer:
        assert answer.status == 403
    await get(bot, browser, "/admin")
