"""Do the pages of a fresh installation make sense to whoever opens them first? No number that contradicts its neighbour."""

import re

import aiohttp

from tests import harness
from tests.command import ootbot
from tests.harness import L2, L4, UPSTREAM
from tests.pages.page_checks import page_text
from tests.pages.test_pages import section
from tests.serving import SQLITE

pytestmark = SQLITE


async def test_what_was_never_swept_was_not_swept_in_1970(settings, github, issuer, clock):
    github.faults.add(method="GET", path="/app/hook/deliveries", status=500, times=99)
    async with harness.running(settings, github=github, issuer=issuer, app=github.app, clock=clock) as bot:
        await bot.wait(660)
        async with (
            aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser,
            browser.post(f"{bot.url}/admin/sign-in", data={"token": settings.admin_token}) as answer,
        ):
            page = await answer.text()
        assert "reconcile" in page
        assert re.search(r"\d{4,} d ago", page) is None


async def test_a_backend_that_never_answered_does_not_say_that_there_is_no_data(bot, github):
    await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.wait(24 * 3600 + 61)
    text = await page_text(bot, "/oot")
    row = text[text.index(f"tpu {L4}") : text.index("L3 Check runs")]
    assert "✕ 0 %" in row
    assert "never answered" in row
    assert "no data yet" not in row


async def test_a_backend_that_timed_out_is_not_counted_as_failed(bot, github):
    pull = await github.open_pull(UPSTREAM)
    await bot.settle()
    await bot.report(bot.dispatch(L2), status="in_progress")
    await bot.wait(6 * 3600 + 61)
    page = (await bot.get(f"/{UPSTREAM}/pull/{pull.number}"))[1]
    assert "0 of 1 passed, 1 timed out" in section(page, L2)
    assert "1 failed" not in section(page, L2)


async def test_a_name_at_the_beginning_of_a_sentence_stays_as_it_is_written(bot):
    page = (await bot.get("/oot/none/such", headers={"Accept": "text/html"}))[1]
    assert '<p class="lead">none/such' in page
    page = (await bot.get("/oot?days=x", headers={"Accept": "text/html"}))[1]
    assert '<p class="lead reason">days must be' in page


async def test_no_task_is_said_to_be_dead_where_none_is(bot):
    code, out, err = await ootbot(bot, "tasks", "list", "--state", "dead")
    assert (code, out, err) == (0, "", "no task is dead\n")
    code, out, _ = await ootbot(bot, "tasks", "list", "--state", "dead", "--json")
    assert (code, out) == (0, "[]\n")
