"""Which process does what? Web and worker apart on one PostgreSQL; on SQLite one process, and no second."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import aiohttp
import pytest

from tests.harness import SECRET, UPSTREAM, sign
from tests.process import PATIENCE, Process, options_for, until
from tests.serving import POSTGRES, SQLITE

ISSUE = (
    b'{"action":"opened","issue":{"id":7,"number":1},"repository":{"id":5,"full_name":"%b","private":false}}'
    % UPSTREAM.encode()
)


@contextlib.asynccontextmanager
async def started(*processes):
    """Start processes and wait until they answer; killed in the end."""
    try:
        for one in processes:
            await asyncio.wait_for((await one.start()).wait(), PATIENCE)
        yield
    finally:
        for one in processes:
            one.kill()
            await one.ended()


async def outcome(process):
    """Start a process that ends by itself; returns its exit code and what it said."""
    await process.start()
    return await asyncio.wait_for(process.ended(), PATIENCE), process.said


async def get(http, url):
    async with http.get(url) as answer:
        return answer.status, await answer.json() if "json" in answer.content_type else None


async def deliver(http, url, guid="g-1"):
    headers = {"Content-Type": "application/json", "X-GitHub-Event": "issues", "X-GitHub-Delivery": guid,
               "X-Hub-Signature-256": sign(ISSUE, SECRET)}  # fmt: skip
    async with http.post(f"{url}/api/github/webhooks", data=ISSUE, headers=headers) as answer:
        return answer.status


@POSTGRES
async def test_web_stores_what_a_worker_handles(tmp_path, database_url, app_key):
    options = options_for(tmp_path, private_key=app_key) | {"DATABASE_URL": database_url}
    web = Process(tmp_path, ROLE="web", **options)
    worker = Process(tmp_path, ROLE="worker", PUBLIC_URL=web.url, **options)
    async with aiohttp.ClientSession() as http, started(web):
        assert await deliver(http, web.url) == 202
        status, ready = await get(http, f"{web.url}/readyz")
        assert (status, ready["role"]) == (503, "web")  # nobody has read the allowlist yet
        assert "allowlist" in ready["missing"][0]
        record = f"{web.url}/api/records/issue/{UPSTREAM}/1"
        assert (await get(http, record))[0] == 404
        async with started(worker):
            async with asyncio.timeout(PATIENCE):
                while (await get(http, record))[0] != 200:  # noqa: ASYNC110 - another process is at work
                    await asyncio.sleep(0.05)
            status, ready = await get(http, f"{worker.url}/readyz")
            assert (status, ready["role"]) == (200, "worker")
            assert (await get(http, f"{web.url}/readyz"))[0] == 200
            assert (await get(http, f"{worker.url}/healthz"))[0] == 200
            assert (await get(http, f"{worker.url}/metrics"))[0] == 200
            assert await deliver(http, worker.url) == 404
            assert (await get(http, f"{worker.url}/oot"))[0] == 404


@SQLITE
@pytest.mark.parametrize("role", ["web", "worker"])
async def test_on_sqlite_roles_are_refused_with_the_next_step(tmp_path, database_url, app_key, role):
    options = options_for(tmp_path, private_key=app_key) | {"PUBLIC_URL": "https://ootbot.example.org"}
    code, said = await outcome(Process(tmp_path, ROLE=role, **options))
    assert code == 2
    (line,) = said
    assert f"OOTBOT_ROLE={role}" in line
    assert "OOTBOT_DATABASE_URL" in line
    assert not (tmp_path / "ootbot.db").exists()


@POSTGRES
async def test_a_worker_has_to_be_told_where_the_pages_are(tmp_path, database_url, app_key):
    options = options_for(tmp_path, private_key=app_key) | {"DATABASE_URL": database_url}
    code, said = await outcome(Process(tmp_path, ROLE="worker", **options))
    assert code == 2
    assert "OOTBOT_PUBLIC_URL" in said[0]


async def test_a_port_that_is_taken_is_named(tmp_path, app_key):
    process = Process(tmp_path, **options_for(tmp_path, private_key=app_key))
    with socket.create_server(("127.0.0.1", process.port)):
        code, said = await outcome(process)
    assert code == 2
    (line,) = said
    assert f"127.0.0.1:{process.port}" in line
    assert "OOTBOT_PORT" in line


async def test_sqlite_has_one_server_and_lets_the_next_in_when_that_was_killed(tmp_path, app_key):
    options = options_for(tmp_path, private_key=app_key)
    first, second = Process(tmp_path, **options), Process(tmp_path, **options)
    async with started(first):
        code, said = await outcome(second)
        assert code == 2
        (line,) = said
        assert f"process {first.pid} " in line
        assert str(tmp_path / "ootbot.db") in line
    async with started(second):
        await until(lambda: second.rows("SELECT id FROM allowlist_version"), what="the second at work")
