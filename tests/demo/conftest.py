"""Fixtures for tests of the simulated GitHub: a client that acts as an App, a pull request."""

from __future__ import annotations

import aiohttp
import pytest

from bot.demo.github import SimulatedGitHub
from tests.contract.recorder import recorded
from tests.demo.app_client import KEY, SECRET, UPSTREAM, AppClient, webhook_receiver
from tests.harness import ManualClock


@pytest.fixture
async def client():
    clock = ManualClock()
    github = SimulatedGitHub(clock=clock)
    await github.start()
    try:
        async with webhook_receiver() as receiver, aiohttp.ClientSession() as session:
            app = github.register_app(webhook_url=receiver.url, webhook_secret=SECRET, private_key_pem=KEY)
            github.add_repo(UPSTREAM)
            with recorded(github):
                yield AppClient(github, clock, app, receiver, session)
                await github.settled()
    finally:
        await github.stop()


@pytest.fixture
async def pull(client):
    return await client.github.open_pull(UPSTREAM)
