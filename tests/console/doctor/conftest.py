"""A bot as a process, for `ootbot doctor` to examine."""

import asyncio

import pytest

from bot.core.clock import SystemClock
from bot.github import manifest
from tests.console.doctor.examined import ONE
from tests.harness import simulated_github
from tests.process import PATIENCE, Process, options_for


@pytest.fixture
def clock():
    """The process's own: it is no part of this one."""
    return SystemClock()


@pytest.fixture
async def github(clock, app_key):
    async with simulated_github(clock, app_key, permissions=ONE.granted, events=ONE.events) as made:
        yield made


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
