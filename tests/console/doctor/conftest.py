"""A bot as a process, for `ootbot doctor` to examine."""

from __future__ import annotations

import asyncio

import pytest

from bot.demo.github import SimulatedGitHub
from bot.demo.issuer import Issuer
from bot.github import manifest
from tests.console.doctor.examined import ONE
from tests.harness import L1, L2, L3, L4, SECRET, UPSTREAM
from tests.process import PATIENCE, Process, options_for


@pytest.fixture
async def github(app_key):
    made = SimulatedGitHub()
    await made.start()
    made.app = made.register_app(
        webhook_url=None,
        webhook_secret=SECRET,
        private_key_pem=app_key,
        permissions=ONE.granted,
        events=ONE.events,
    )
    for name in (UPSTREAM, L1, L2, L3, L4):
        made.add_repo(name)
    yield made
    await made.stop()


@pytest.fixture
async def issuer():
    made = Issuer()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def serving(github, issuer, tmp_path, app_key):
    """A bot as a process, and what `doctor` needs to look at it."""
    options = options_for(
        tmp_path, private_key=app_key, app_id=github.app.app_id, api_url=github.api_url, issuer=issuer
    )
    process = Process(tmp_path, **options)
    options |= {"PORT": str(process.port), "PUBLIC_URL": process.url, "DATA_DIR": str(tmp_path)}
    process._options |= options
    github.app.webhook_url = process.url + manifest.HOOK
    ready = await process.start()
    await asyncio.wait_for(ready.wait(), PATIENCE)
    process.options = options
    yield process
    process.kill()
    await process.ended()
