"""Receivers that are away, refuse, redirect or hang: each notice arrives once, or is given up and shown."""

from __future__ import annotations

import contextlib

import aiohttp
import pytest
import sqlalchemy as sa

from bot.notify.sending import WEBHOOKS, Webhooks
from bot.notify.tables import notice_sending
from tests.notify.conftest import BACKENDS
from tests.notify.receiving import LATER, check, run_once, turn_red, verify

pytestmark = pytest.mark.logic


async def sendings(bot):
    async with bot.store.read() as tx:
        return [dict(row) for row in await tx.rows(sa.select(notice_sending))]


async def test_a_receiver_that_is_away_gets_the_same_notice_later(bot, inbox):
    inbox.answers = [(500, {}), (503, {"Retry-After": "90"}), (204, {})]
    await turn_red(bot)
    await check(bot)
    assert [row["state"] for row in await sendings(bot)] == ["waiting"]

    await bot.wait(10)
    assert len(inbox.got) == 2
    await bot.wait(80)
    assert len(inbox.got) == 2
    await bot.wait(30)

    assert len(inbox.got) == 3
    assert len({headers["webhook-id"] for headers, _ in inbox.got}) == 1
    assert len({headers["webhook-timestamp"] for headers, _ in inbox.got}) == 3
    assert all(verify(headers, body) for headers, body in inbox.got)
    [row] = await sendings(bot)
    assert (row["state"], row["attempts"], row["error"]) == ("sent", 3, None)


@pytest.mark.nightly
async def test_a_receiver_that_never_answers_is_given_up_after_a_day_and_can_be_retried(bot, inbox):
    inbox.answers = [(500, {})] * 100
    await turn_red(bot)
    await bot.wait(26 * 3_600)

    [row] = [one for one in await sendings(bot) if one["state"] == "dead"]
    assert row["error"].startswith("it answered 500")
    assert 20 <= row["attempts"] <= 40
    async with browsing(bot) as browser:
        assert "it answered 500" in await read_admin(bot, browser)
        inbox.answers.clear()
        inbox.got.clear()
        assert "for team will be sent again" in await press_retry(bot, browser)
    await bot.settle()
    assert inbox.told[0] == "backend_red"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((302, {"Location": "https://elsewhere.example/"}), "redirects are not followed"),
        ((400, {}), "it answered 400"),
        ((410, {}), "it answered 410"),
    ],
)
async def test_what_can_never_be_sent_is_given_up_at_once(bot, inbox, answer, why):
    inbox.answers = [answer]
    await turn_red(bot)
    await check(bot)

    [row] = await sendings(bot)
    assert row["state"] == "dead"
    assert why in row["error"]
    assert len(inbox.got) == 1


async def test_an_address_in_our_own_network_is_refused_and_the_next_step_named(inbox, serve):
    refused = inbox.receiver(url=inbox.url.replace("http:", "https:"), internal=False, events=BACKENDS)
    async with serve(refused) as bot:
        await turn_red(bot)
        await check(bot)

        [row] = await sendings(bot)
        assert row["state"] == "dead"
        assert "internal = true" in row["error"]
    assert inbox.got == []


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("https://127.0.0.1/", "inside our own network"),
        ("https://10.1.2.3/", "inside our own network"),
        ("https://192.168.0.1:8443/", "inside our own network"),
        ("https://169.254.169.254/latest/meta-data", "inside our own network"),
        ("https://[::1]/", "inside our own network"),
        ("https://[fd00::1]/", "inside our own network"),
        ("https://[::ffff:127.0.0.1]/", "inside our own network"),
        ("https://localhost/", "inside our own network"),
        ("https://127.1/", "no plain address"),
        ("https://2130706433/", "no plain address"),
        ("https://user@example.org/", "no plain address"),
        ("http://example.org/", "only https"),
    ],
)
async def test_where_nothing_is_sent_to(address, why):
    webhooks = Webhooks(own_port=1, proxy=None)
    attempt = await webhooks.post(address, b"{}", {}, internal=False)
    await webhooks.close()
    assert attempt.final
    assert why in attempt.error


async def test_our_own_endpoints_are_no_receiver(inbox, serve):
    async with serve(inbox.receiver()) as bot:
        port = bot.context.settings.port
        loop = inbox.receiver(name="loop", url=f"http://127.0.0.1:{port}/api/oot/results", events=BACKENDS)
        attempt = await bot.context.resource(WEBHOOKS).post(loop.url, b"{}", {}, internal=True)
    assert "leads to this bot itself" in attempt.error


@pytest.mark.nightly
async def test_a_receiver_that_hangs_is_left_after_seconds(bot, inbox):
    inbox.answers = ["hang"]
    await turn_red(bot)
    await check(bot)

    [row] = await sendings(bot)
    assert (row["state"], row["error"]) == ("waiting", "no answer in time")


@pytest.mark.nightly
async def test_one_receiver_that_is_away_delays_no_other(inbox, serve):
    away = inbox.receiver(name="away", url="http://127.0.0.1:9/hook", events=BACKENDS)
    async with serve(away, inbox.receiver(events=BACKENDS)) as bot:
        await turn_red(bot)
        await check(bot)

        states = {row["receiver"]: row["state"] for row in await sendings(bot)}
        assert states == {"away": "waiting", "team": "sent"}


@pytest.mark.nightly
async def test_notices_of_a_receiver_arrive_in_order(bot, inbox):
    inbox.answers = [(500, {})]
    await turn_red(bot)
    await check(bot)
    bot.clock.advance(LATER + 8 * 3_600)
    await bot.settle()
    await run_once(bot, "success", run_id="9")
    await bot.wait(60)

    assert inbox.told[:2] == ["backend_red", "backend_red"]
    assert inbox.told.index("backend_silent") < inbox.told.index("backend_reporting")


async def test_what_waits_for_a_receiver_that_was_taken_out_is_dropped(inbox, serve):
    inbox.answers = [(500, {})] * 9
    async with serve(inbox.receiver(events=BACKENDS)) as bot:
        await turn_red(bot)
        await check(bot)
    async with serve(inbox.receiver(name="other", events=BACKENDS)) as bot:
        await check(bot)
        [row] = await sendings(bot)
        assert (row["receiver"], row["state"]) == ("team", "dropped")


@contextlib.asynccontextmanager
async def browsing(bot):
    """A browser whose administrator is signed in."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        await browser.post(f"{bot.url}/admin/sign-in", data={"token": bot.context.settings.admin_token})
        yield browser


async def read_admin(bot, browser):
    async with browser.get(f"{bot.url}/admin") as answer:
        return await answer.text()


async def press_retry(bot, browser):
    """Press the button of the section of notices; returns what the page then says."""
    form = (await read_admin(bot, browser)).partition('action="/admin/notify"')[2]
    key = form.partition('name="key" value="')[2].partition('"')[0]
    async with browser.post(f"{bot.url}/admin/notify", data={"key": key, "receiver": "team"}) as answer:
        return await answer.text()
