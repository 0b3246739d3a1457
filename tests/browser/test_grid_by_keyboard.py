"""The grid of a branch by keyboard: its script, what it may do, and what it does."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.browser import chromium
from tests.harness import UPSTREAM
from tests.jobs.branch import COMMITS, deliver, job, push
from tests.jobs.test_hud import HUD
from tests.serving import SQLITE

KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35, "Enter": 13}
ALL = f"{HUD}?groups=0"
WHERE = """(() => { const cell = document.activeElement.closest("tbody th, tbody td");
    return cell && [cell.parentNode.rowIndex - 2, cell.cellIndex, cell.textContent.trim()] })()"""


@pytest.fixture
async def tab():
    async with chromium.running() as made:
        yield made


async def a_grid(bot):
    """Two commits, three jobs; one failed on the newer commit."""
    await deliver(bot, push(bot, "A"), push(bot, "B", parent="A", at=1),
               *(job(bot, name, commit, "failure" if (name, commit) == ("lint", "B") else "success", workflow=workflow)
                 for workflow, name in (("a", "lint"), ("b", "test_x"), ("c", "test_y")) for commit in "AB"))  # fmt: skip


@SQLITE
async def test_pages_may_run_scripts_of_ours_and_nothing_else_may(bot):
    await a_grid(bot)

    async def policy(path):
        async with bot.http.get(bot.url + path) as answer:
            rules = dict(
                rule.split(" ", 1)
                for rule in answer.headers["Content-Security-Policy"].split("; ")
                if " " in rule
            )
            return rules.get("script-src"), rules.get("connect-src"), (await answer.text()).count("<script")

    assert await policy(HUD) == ("'self'", "'self'", 3)
    for path in ("/oot", f"/{UPSTREAM}/metrics", f"/{UPSTREAM}/commit/{COMMITS['A']}", "/admin"):
        assert await policy(path) == ("'self'", "'self'", 2)
    for path in (f"/api/ci{HUD}", "/static/grid.js", "/static/comfort.js", "/static/favicon.svg", "/nowhere"):
        assert await policy(path) == (None, None, 0)
    page = (await bot.get(HUD))[1]
    scripts = re.findall(r'<script src="([^"]+)"', page)
    assert len(scripts) == 3
    for address in scripts:
        async with bot.http.get(bot.url + address) as answer:
            assert (answer.status, answer.headers["Content-Type"]) == (200, "text/javascript; charset=utf-8")
            assert answer.headers["X-Content-Type-Options"] == "nosniff"


@SQLITE
@pytest.mark.skipif(chromium.find() is None, reason="no Chromium here: apt-get install chromium")
async def test_arrows_move_between_cells_and_enter_opens_one(bot, tab):
    await a_grid(bot)
    await tab.look(width=1440, dark=False)
    await tab.open(bot.url + ALL)

    async def press(*keys):
        for key in keys:
            await tab.press(key, KEYS[key])
        return await tab.evaluate(WHERE)

    async def enter():
        tab.loaded.clear()
        await tab.press("Enter", KEYS["Enter"])
        async with asyncio.timeout(chromium.PATIENCE):
            await tab.loaded.wait()
        return await tab.evaluate("document.querySelector('#cell').textContent.replace(/\\s+/g, ' ')")

    await tab.evaluate("document.querySelector('table.hud').closest('[tabindex]').focus()")
    assert await press("ArrowDown") == [0, 1, "X"]
    assert await press("ArrowRight", "ArrowDown", "ArrowDown") == [1, 2, "O"]
    assert await press("End") == [1, 3, "O"]
    assert await press("Home", "ArrowUp") == [0, 1, "X"]
    assert "a / lint on" in await enter()
    await tab.evaluate("document.querySelector('table.hud').closest('[tabindex]').focus()")
    assert await press("ArrowUp") == [0, 1, "X"]  # it begins at the open cell
    assert await press("ArrowRight", "ArrowDown") == [1, 2, "O"]
    opened = await enter()  # a green cell, which has no link of its own
    assert "b / test_x on" in opened
    assert COMMITS["A"][:7] in opened
    await tab.evaluate("document.querySelector('table.hud').closest('[tabindex]').focus()")
    assert (await press("ArrowLeft"))[:2] == [1, 2]
    assert (await press("ArrowLeft", "ArrowLeft"))[:2] == [1, 0]
    assert tab.complaints == []
