"""Does the bot stop as it should? SIGTERM: no new work, what runs is finished or returned, within ten seconds."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from pathlib import Path

import aiohttp
import pytest
import sqlalchemy as sa

from bot.core.clock import SystemClock
from tests import databases
from tests.db.opened import opened
from tests.flows.test_database_gone import mute, postgresql
from tests.flows.test_many_workers import started
from tests.harness import SECRET, UPSTREAM, sign
from tests.process import PATIENCE, Process, options_for, until
from tests.serving import POSTGRES

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
    assert time.monotonic() - began < 60, "GRACE, and a few seconds: not the two minutes of a statement"
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


@pytest.mark.nightly
@POSTGRES
async def test_what_comes_after_it_was_told_to_stop_is_left_to_others(
    tmp_path, database_url, app_key, github
):
    """A worker finishes a slow call; meanwhile another process stores a delivery, and wakes it up."""
    options = options_for(tmp_path, private_key=app_key, app_id=github.app.app_id, api_url=github.api_url)
    options |= {"DATABASE_URL": database_url, "LOG_LEVEL": "info"}
    web = Process(tmp_path, ROLE="web", **options)
    worker = Process(tmp_path, ROLE="worker", PUBLIC_URL=web.url, **options)
    github.app.webhook_url = f"{web.url}/api/github/webhooks"
    running = "SELECT count(*) FROM task WHERE kind = 'dispatch' AND state = 'running'"
    async with (
        aiohttp.ClientSession() as http,
        started(web, worker),
        databases.connected(database_url) as conn,
    ):
        github.faults.add(method="POST", path="/dispatches$", status=None, delay=4.0, times=4)
        await github.open_pull(UPSTREAM)
        async with asyncio.timeout(PATIENCE):
            while await conn.fetchval(running) < 4:  # noqa: ASYNC110 - another process is at work
                await asyncio.sleep(0.02)
        os.kill(worker.pid, signal.SIGTERM)
        await until(lambda: said(worker, "stopping: no new work"), what="the end to begin")
        for guid in ("late-1", "late-2"):
            assert await deliver_at_once(http, web.url, guid) == 202
        await asyncio.wait_for(worker.ended(), 15)
        assert len(github.dispatches) == 4, "what it had begun it finished"
        late = await conn.fetch("SELECT guid, state, attempts FROM delivery WHERE guid LIKE 'late-%'")
        assert {tuple(row) for row in late} == {("late-1", "stored", 0), ("late-2", "stored", 0)}
        assert await conn.fetchval("SELECT count(*) FROM task WHERE state = 'running'") == 0
        sent = await conn.fetch("SELECT state, attempts FROM oot_dispatch")
        assert [tuple(row) for row in sent] == [("sent", 1)] * 4


def said(process, words):
    return any(words in line for line in process.said)


async def deliver_at_once(http, url, guid):
    headers = {
        "Content-Type": "application/json", "X-GitHub-Event": "issues", "X-GitHub-Delivery": guid,
        "X-Hub-Signature-256": sign(ISSUE, SECRET),
    }  # fmt: skip
    async with http.post(f"{url}/api/github/webhooks", data=ISSUE, headers=headers) as answer:
        return answer.status


async def test_it_stops_while_postgresql_says_nothing(tmp_path, app_key):
    options = options_for(tmp_path, private_key=app_key)
    with tempfile.TemporaryDirectory() as folder, postgresql(Path(folder) / "mute") as server:
        bot = Process(tmp_path, DATABASE_URL=server.get_uri(), **options)
        async with aiohttp.ClientSession() as http, started(bot):
            assert await deliver_at_once(http, bot.url, "before") == 202
            with mute(server):
                began = time.monotonic()
                os.kill(bot.pid, signal.SIGTERM)
                assert await asyncio.wait_for(bot.ended(), 150) == 0
                assert time.monotonic() - began < 60, (
                    "GRACE, and a few seconds: not the two minutes of a statement"
                )
            assert not any("Traceback" in line for line in bot.said), bot.said


async def test_a_connection_that_waits_to_be_given_back_is_hung_up_on(tmp_path):
    with postgresql(tmp_path / "mute") as server:
        async with opened(server.get_uri(), SystemClock()) as store:
            begun = asyncio.Event()

            async def hesitate():
                async with store.read() as tx:
                    await tx.run(sa.text("SELECT 1"))
                    begun.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(hesitate())
            await begun.wait()
            with mute(server):
                task.cancel()
                await asyncio.sleep(0.2)  # it asks to roll back what it has begun
                assert not task.done()
                store.hang_up()
                await asyncio.wait([task], timeout=10)
                assert task.done()
