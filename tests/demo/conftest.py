"""What do tests of the simulated GitHub start with?"""

from __future__ import annotations

import aiohttp
import pytest

from bot.demo.github import SimulatedGitHub
from tests.demo.desk import (
    KEY,
    SECRET,
    UPSTREAM,
    Desk,
    Hands,
    listening,
)


@pytest.fixture
async def desk():
    clock = Hands()
    github = SimulatedGitHub(clock=clock)
    await github.start()
    try:
        async with listening() as listener, aiohttp.ClientSession() as session:
            app = github.register_app(webhook_url=listener.url, webhook_secret=SECRET, private_key_pem=KEY)
            github.add_repo(UPSTREAM)
            yield Desk(github, clock, app, listener, session)
            await github.settled()
    finally:
        await github.stop()


@pytest.fixture
async def pull(desk):
    return await desk.github.open_pull(UPSTREAM)
