"""Does the bot stop as it should? SIGTERM: no new work, what runs is finished or returned, within ten seconds."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import aiohttp
import pytest

from bot.core.clock import SystemClock
from tests.harness import SECRET, UPSTREAM, sign
from tests.process import PATIENCE, Process, options_for, until

ISSUE = b'{"action":"opened","issue":{"id":7,"number":1},"repository":{"id":5,"full_name":"pytorch/pytorch"}}'


@pytest.fixture
def clock():
    """A process lives in the present."""
    return SystemClock()


@pytest.fixture
async def process(tmp_path, app_key, github):
    """A bot of its own, working against the simulated GitHub."""
    options = options_for(tmp_path, private_key=app_key, app_id=github.app.app_id, api_url=github.api_url)
    made = Process(tmp_path, **options)
    await asyncio.wait_for((await made.start()).wait(), PATIENCE)
    github.app.webhook_url = f"{made.url}/api/github/webhooks"
    yield made
    made.kill()
    await made.ended()


async def test_it_returns_what_it_cannot_finish_and_answers_whoever_has_begun(process, github):
    github.faults.add(method="POST", path="/dispatches$", status=None, delay=30.0, times=99)
    await github.open_pull(UPSTREAM)
    query = "SELECT id FROM task WHERE state = 'running' AND kind = 'dispatch'"
    await until(lambda: process.rows(query), what="a dispatch under way")
    async with aiohttp.ClientSession() as http:
        half = asyncio.Event()
        sent = asyncio.create_task(deliver(http, process.url, half))
        await half.wait()
        for _ in range(3):  # until the half has arrived: so have three calls and their answers
            async with http.get(f"{process.url}/healthz") as answer:
                assert answer.status == 200
        began = time.monotonic()
        os.kill(process.pid, signal.SIGTERM)
        assert await sent == 202
        await asyncio.wait_for(process.ended(), PATIENCE)
    assert time.monotonic() - began < 25
    assert process.rows("SELECT id, kind FROM task WHERE state = 'running'") == []
    waiting = process.rows("SELECT kind, owner FROM task WHERE state = 'waiting' AND kind = 'dispatch'")
    assert waiting
    assert {row["owner"] for row in waiting} == {None}
    assert process.rows("SELECT guid FROM delivery WHERE guid = 'begun'")


async def deliver(http, url, half):
    """Send a delivery in two pieces, the second a second after the first."""

    async def body():
        yield ISSUE[:20]
        half.set()
        await asyncio.sleep(1)
        yield ISSUE[20:]

    headers = {
        "Content-Type": "application/json", "X-GitHub-Event": "issues", "X-GitHub-Delivery": "begun",
        "X-Hub-Signature-256": sign(ISSUE, SECRET), "Content-Length": str(len(ISSUE)),
    }  # fmt: skip
    async with http.post(f"{url}/api/github/webhooks", data=body(), headers=headers) as answer:
        return answer.status
