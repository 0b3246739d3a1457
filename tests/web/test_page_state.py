"""A page's state in its title and icon: what is open in a tab can be told from its label."""

import re

import pytest

from tests.harness import L2, L4, UPSTREAM
from tests.pages.page_checks import add_job
from tests.serving import SQLITE

ICON = re.compile(r'<link rel="icon" href="([^"]+)"')


async def tab_of(bot, path):
    """The title of a page, and the colour of its icon."""
    _, page = await bot.get(path)
    title = re.search(r"<title>(.*?)</title>", page)[1]
    async with bot.http.get(bot.url + ICON.search(page)[1].replace("&amp;", "&")) as answer:
        assert answer.headers["Content-Type"].startswith("image/svg+xml")
        return title, re.search(r'fill="(#\w+)"', await answer.text())[1]


@SQLITE
async def test_a_backend_is_green_or_red_in_its_tab(bot):
    await add_job(bot, downstream_repo=L2)
    await add_job(bot, downstream_repo=L4, conclusion="failure")
    assert await tab_of(bot, f"/oot/{L2}") == ("org/l2-sim · ootbot", "#1b6e3a")
    assert await tab_of(bot, f"/oot/{L4}") == ("✕ tpu · ootbot", "#b3261e")
    assert await tab_of(bot, "/red") == ("✕ 1 red · ootbot", "#b3261e")
    assert (await tab_of(bot, "/api"))[1] == "#24577a"  # a page without a state


@SQLITE
@pytest.mark.parametrize("state", ["", "pink", "bad&x=1", '"><script>', "a" * 3_000])
async def test_the_icon_is_always_one_of_ours(bot, state):
    async with bot.http.get(f"{bot.url}/static/favicon.svg", params={"state": state}) as answer:
        assert answer.status == 200
        text = await answer.text()
    assert text.startswith("<svg")
    assert "script" not in text


@SQLITE
async def test_ages_and_times_say_what_they_mean(bot):
    await add_job(bot, downstream_repo=L2)
    for path in ("/oot", f"/oot/{L2}", "/red", f"/hud/{UPSTREAM}/main", "/oot/levels"):
        _, page = await bot.get(path)
        times = re.findall(r"<time([^>]*)>", page)
        assert times, path
        assert all(re.search(r'datetime="\d{4}-\d\d-\d\dT[\d:.]+Z"', one) for one in times), path
