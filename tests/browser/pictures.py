"""Photograph the pages: `python -m tests.browser.pictures FOLDER [NAME...]` writes PNGs of the story of the tests."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path

from bot.demo.github.auth import private_key
from tests import harness
from tests.browser import chromium, story
from tests.browser.test_pages_in_a_browser import SIGNED_IN, addresses, sign_in

VIEWS = {
    "desk": (1440, False), "desk-dark": (1440, True), "phone": (390, False), "phone-dark": (390, True),
    "wide": (2560, False),
}  # fmt: skip


async def main(folder: Path, wanted: set[str]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        clock = harness.ManualClock()
        github, issuer = harness.SimulatedGitHub(clock=clock), harness.Issuer(clock=clock)
        for part in (github, issuer):
            await part.start()
            stack.push_async_callback(part.stop)
        app = github.register_app(
            webhook_url=None, webhook_secret=harness.SECRET, private_key_pem=private_key()
        )
        for name in (harness.UPSTREAM, harness.L1, harness.L2, harness.L3, harness.L4):
            github.add_repo(name)
        data = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (data / "allowlist.yml").write_text(story.ALLOWLIST)
        settings = harness.make_settings(
            github=github, issuer=issuer, app=app, folder=data, of_features=story.OF_FEATURES
        )
        running = harness.running(settings, github=github, issuer=issuer, app=app, clock=clock)
        bot = await stack.enter_async_context(running)
        await story.tell(bot, github)
        tab = await stack.enter_async_context(chromium.running())
        await photograph(bot, tab, folder, wanted)


async def photograph(bot, tab, folder, wanted):
    folder.mkdir(parents=True, exist_ok=True)
    pages = await addresses(bot)
    for signed_in in (False, True):
        if signed_in:
            await sign_in(bot, tab)
        for name, path in (SIGNED_IN if signed_in else pages).items():
            for view, (width, dark) in VIEWS.items():
                label = f"{name}-{view}"
                if wanted and label not in wanted:
                    continue
                await tab.look(width=width, dark=dark)
                await tab.open(bot.url + path)
                (folder / f"{label}.png").write_bytes(await tab.picture(whole=not wanted))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), set(sys.argv[2:])))
