"""Registration in a browser, from the printed address to the last page."""

from __future__ import annotations

import asyncio

import pytest

from bot.demo.github import SimulatedGitHub
from tests.browser import chromium
from tests.console.test_init import init

pytestmark = pytest.mark.skipif(chromium.find() is None, reason="no Chromium here: apt-get install chromium")


async def press(tab, button):
    tab.loaded.clear()
    await tab.evaluate(
        f"[...document.querySelectorAll('button')].find((one) => one.textContent == {button!r}).click()"
    )
    async with asyncio.timeout(chromium.PATIENCE):
        await tab.loaded.wait()


async def test_the_app_is_registered_in_two_presses(tmp_path):
    github = SimulatedGitHub()
    await github.start()
    try:
        async with chromium.running() as tab, init(github, tmp_path) as running:
            await tab.open(await running.address())
            await press(tab, "Register on GitHub")
            await press(tab, "Create GitHub App")
            shown = await tab.evaluate("document.body.innerText")
            assert await running.ended() == 0
            width = await tab.evaluate("getComputedStyle(document.body).maxWidth")
        assert shown.startswith("Registered\n")
        assert width != "none"  # the stylesheet is there, though `ootbot init` has ended
        assert not [said for said in tab.complaints if "Content Security Policy" in said]
    finally:
        await github.stop()
