"""What the administrator sees of sinks, and a folder that cannot be written."""

from __future__ import annotations

import re

import aiohttp
import pytest

from tests.harness import UPSTREAM
from tests.ops.test_admin_pages import sign_in
from tests.serving import SQLITE
from tests.sinks.stored import files
from tests.sinks.test_archive import delivered

pytestmark = SQLITE


@pytest.fixture
async def browser(bot):
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        await sign_in(bot, session)
        yield session


async def text_of_admin(bot, browser):
    async with browser.get(f"{bot.url}/admin") as answer:
        page = await answer.text()
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


async def test_the_administrator_sees_how_sinks_stand(bot, github, folder, browser):
    await delivered(bot, github)
    count = len(await bot.rows("delivery"))
    text = await text_of_admin(bot, browser)
    assert f"archive (file://{folder}/archive)" in text
    assert f"archive deliveries ok 0 {count}" in text


async def test_a_folder_that_cannot_be_written_waits_for_its_mending(bot, github, folder, browser):
    folder.mkdir()
    (folder / "archive").write_text("a file is in its way")
    bodies = await delivered(bot, github)
    bot.clock.advance(700)
    text = await text_of_admin(bot, browser)
    assert "archive deliveries away" in text
    assert f"{len(bodies)} rows wait, the oldest for" in text
    (folder / "archive").unlink()
    await bot.settle(horizon=400)
    archived = [key for key in files(folder / "archive") if key.endswith(".json.gz")]
    assert len(archived) == len(await bot.rows("delivery"))
    assert any(UPSTREAM in key for key in files(folder / "copies")), "the other sink never waited"
