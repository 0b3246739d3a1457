"""The script of every page: the reader's own time, tables sorted by a click, refreshing in place."""

from __future__ import annotations

import asyncio

import pytest

from tests.browser import chromium
from tests.harness import L2, L3, L4, UPSTREAM
from tests.jobs.branch import deliver, job, push
from tests.jobs.test_hud import HUD
from tests.pages.page_checks import add_job
from tests.serving import SQLITE
from tests.sums import count_changed

pytestmark = [
    pytest.mark.skipif(chromium.find() is None, reason="no Chromium here: apt-get install chromium"),
    SQLITE,
]
ICON = "document.querySelector('link[rel=icon]').href.split('state=')[1] || ''"


@pytest.fixture
async def tab():
    async with chromium.running() as made:
        yield made
        assert [said for said in made.complaints if "DISCONNECTED" not in said] == []


async def until(tab, script):
    """Wait until something is so on the page."""
    async with asyncio.timeout(chromium.PATIENCE):
        while not await tab.evaluate(script):  # noqa: ASYNC110 - the browser is another process
            await asyncio.sleep(0.02)


async def refresh_now(tab):
    """What happens after the page's seconds, at once: the page is looked at again."""
    await tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


async def branch(bot, *, failing=()):
    await deliver(
        bot, push(bot, "A"), push(bot, "B", parent="A", at=1), push(bot, "C", parent="B", at=2),
        *(job(bot, name, commit, "failure" if name in failing else "success")
          for name in ("lint", "build") for commit in "ABC"),
    )  # fmt: skip


async def test_times_are_the_readers_own(bot, tab):
    await add_job(bot, downstream_repo=L4)
    await tab.call("Emulation.setTimezoneOverride", timezoneId="Asia/Tokyo")
    await tab.open(f"{bot.url}/oot")
    title = await tab.evaluate("document.querySelector('.health time').title")
    assert "11:13" in title  # 14:13 UTC is 23:13 there
    assert "2026-09-21T14:13" in title
    assert "UTC" not in await tab.evaluate("document.querySelector('footer time.clock').textContent")


async def test_a_click_sorts_a_table_and_another_one_turns_it_round(bot, tab):
    await branch(bot, failing={"build"})
    await deliver(bot, job(bot, "docs", "A"), job(bot, "docs", "B"), job(bot, "docs", "C", "failure"))
    await count_changed(bot.context)
    await tab.open(f"{bot.url}/{UPSTREAM}/reliability")

    async def click(name):
        await tab.evaluate(
            f"[...document.querySelectorAll('th .sort')].find((one) => one.textContent === '{name}').click()"
        )
        order = "[...document.querySelectorAll('main tbody th')].map((one) => one.textContent.trim().split(' / ')[1])"
        sorted_by = (
            "[...document.querySelectorAll('[aria-sort]')].map((one) => one.textContent + ' ' + one.ariaSort)"
        )
        return await tab.evaluate(order), await tab.evaluate(sorted_by)

    assert await click("Passed") == (["lint", "docs", "build"], ["Passed descending"])
    assert await click("Passed") == (["build", "docs", "lint"], ["Passed ascending"])
    assert await click("Job") == (["build", "docs", "lint"], ["Job ascending"])
    assert await click("Job") == (["lint", "docs", "build"], ["Job descending"])


async def test_a_page_refreshes_in_place_and_keeps_what_is_open(bot, tab):
    await branch(bot)
    await tab.open(f"{bot.url}{HUD}?refresh=3600")
    assert await tab.evaluate("document.title.startsWith('main')")
    assert await tab.evaluate(ICON) == "good"
    await deliver(bot, push(bot, "D", parent="C", at=3), job(bot, "build", "D", "failure"))
    await tab.evaluate("window.mark = 'the same document'")
    bot.clock.advance(60)
    await refresh_now(tab)
    await until(tab, "document.querySelector('.standing').textContent.includes('red')")
    assert await tab.evaluate("window.mark") == "the same document"
    assert await tab.evaluate(ICON) == "bad"
    assert (await tab.evaluate("document.title")).startswith("✕ main")


async def test_what_is_open_stays_open(bot, tab):
    await branch(bot, failing={"build"})
    await tab.open(f"{bot.url}{HUD}?refresh=3600")
    await tab.evaluate("document.querySelector('.broken details').open = true")
    await tab.evaluate("document.querySelector('.broken li > a').focus()")
    before = await tab.evaluate("document.querySelector('footer time').dateTime")
    bot.clock.advance(120)
    await refresh_now(tab)
    await until(tab, f"document.querySelector('footer time').dateTime !== '{before}'")
    assert await tab.evaluate("document.querySelector('.broken details').open")
    assert await tab.evaluate("document.activeElement === document.querySelector('.broken li > a')")


async def test_a_page_on_which_nothing_runs_any_more_is_left_alone(bot, tab):
    about = {"pr_number": None, "event_type": "push", "head_sha": "b" * 40, "delivery_id": "e"}
    await add_job(bot, status="in_progress", conclusion=None, completed_at=None, **about)
    await tab.open(f"{bot.url}/{UPSTREAM}/commit/{'b' * 40}")
    assert await tab.evaluate("document.documentElement.dataset.refresh") == "30"
    async with bot.store.transaction() as tx:
        await tx.conn.exec_driver_sql("UPDATE oot_workflow_job SET status='completed', conclusion='success'")
    bot.clock.advance(60)
    await refresh_now(tab)
    await until(tab, "!document.getElementById('refreshing')")
    assert "1 of 1 passed" in await tab.evaluate("document.getElementById('main').textContent")


async def test_nothing_moves_while_somebody_writes_and_a_failure_leaves_the_page(bot, tab):
    await add_job(bot, downstream_repo=L2)
    await add_job(bot, downstream_repo=L3)
    await tab.open(f"{bot.url}/oot?refresh=3600")
    await tab.evaluate("document.querySelector('main input[name=q]').focus()")
    await tab.evaluate("document.querySelector('main input[name=q]').value = 'np'")
    bot.clock.advance(120)
    await refresh_now(tab)
    assert await tab.evaluate("document.querySelector('main input[name=q]').value") == "np"
    await tab.evaluate("document.activeElement.blur()")
    await tab.call(
        "Network.emulateNetworkConditions",
        offline=True,
        latency=0,
        downloadThroughput=-1,
        uploadThroughput=-1,
    )
    await refresh_now(tab)
    await until(tab, "document.getElementById('refreshing').classList.contains('bad')")
    assert await tab.evaluate("document.querySelectorAll('.health tbody tr').length > 2")
    await tab.call(
        "Network.emulateNetworkConditions",
        offline=False,
        latency=0,
        downloadThroughput=-1,
        uploadThroughput=-1,
    )
    await refresh_now(tab)
    await until(tab, "!document.getElementById('refreshing').classList.contains('bad')")
