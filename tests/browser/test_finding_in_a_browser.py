"""Is the answer two clicks or one search away? The key of the search box, and what it leads to, in a browser."""

from __future__ import annotations

import pytest

from tests.browser import chromium
from tests.harness import L3, UPSTREAM
from tests.jobs.branch import deliver, job, push
from tests.pages.page_checks import page_text
from tests.serving import SQLITE

SLASH = 191  # Windows' number of the key


@pytest.fixture
async def tab():
    if chromium.find() is None:
        pytest.skip("no Chromium here")
    async with chromium.running() as made:
        yield made


async def submit(tab, text):
    """Type a text into the box that has the focus, and send it."""
    tab.loaded.clear()
    await tab.call("Input.insertText", text=text)
    await tab.evaluate("document.activeElement.form.requestSubmit()")
    await tab.loaded.wait()
    return await tab.evaluate("location.pathname + location.search")


@SQLITE
async def test_the_key_leads_to_the_box_and_a_number_to_its_pull_request(bot, github, tab):
    await github.open_pull(UPSTREAM, title="Make it faster")
    await bot.settle()
    await tab.open(f"{bot.url}/oot")
    await tab.press("/", SLASH)
    assert await tab.evaluate("document.activeElement.id") == "find"
    assert await tab.evaluate("document.activeElement.value") == ""
    assert await submit(tab, "1") == f"/{UPSTREAM}/pull/1"
    await tab.press("/", SLASH)
    assert await submit(tab, "npu") == "/search?q=npu"
    assert await tab.evaluate("document.querySelector('.hits a').getAttribute('href')") == f"/oot/{L3}"
    assert tab.complaints == []


@SQLITE
async def test_within_another_field_the_key_is_a_character(bot, tab):
    await tab.open(f"{bot.url}/search?q=x")
    await tab.evaluate("document.querySelector('main input').focus()")
    await tab.press("/", SLASH)
    assert await tab.evaluate("document.activeElement.id") == ""


@SQLITE
async def test_whether_main_is_green_is_said_where_the_root_leads(bot):
    await deliver(bot, push(bot, "A"), job(bot, "linux / build", "A"))
    assert "main is green since" in await page_text(bot, "/")
    assert "main is green since" in await page_text(bot, f"/{UPSTREAM}")
