"""The proxies of docs/install-proxy.md, each as the page says: do deliveries arrive behind them, and on the fast path?"""

import asyncio
import contextlib
import json
import re
import uuid

import aiohttp
import pytest

from benchmarks.support import proxies
from bot.core.clock import SystemClock
from tests.harness import SECRET, UPSTREAM, UPSTREAM_ID, sign
from tests.process import ADMIN_TOKEN, PATIENCE, Process, options_for

ISSUE = {"action": "opened", "repository": {"id": UPSTREAM_ID, "full_name": UPSTREAM}}
READ = re.compile(r'^ootbot_deliveries_read_total\{by="(\w+)"\} (\d+)', re.MULTILINE)
ALL = ("nginx", "haproxy", "caddy")
BY_DEFAULT = "nginx"

pytestmark = [
    pytest.mark.parametrize(
        "name",
        [
            pytest.param(
                name,
                marks=[
                    pytest.mark.skipif(name not in proxies.installed(), reason=f"no {name}"),
                    *([] if name == BY_DEFAULT else [pytest.mark.nightly]),
                ],
            )
            for name in ALL
        ],
    )
]


@pytest.fixture
def clock():
    """A process lives in the present."""
    return SystemClock()


@pytest.fixture
async def bot(tmp_path, app_key):
    process = Process(tmp_path, **options_for(tmp_path, private_key=app_key))
    answers = await process.start()
    await asyncio.wait_for(answers.wait(), PATIENCE)
    yield process
    process.kill()
    await process.ended()


@contextlib.asynccontextmanager
async def behind(name, bot):
    """A client of the proxy."""
    with proxies.in_front(name, bot.port) as port:
        async with Client(port) as client:
            yield client


class Client:
    """One connection to a proxy, which sends head and body of a delivery one after the other."""

    def __init__(self, port):
        self._port = port

    async def __aenter__(self):
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_):
        self._writer.close()

    async def deliver(self, size=9_000):
        body = json.dumps(ISSUE | {"filler": "x" * size}).encode()
        head = (
            f"POST /api/github/webhooks HTTP/1.1\r\nHost: ootbot.example.org\r\nContent-Length: {len(body)}\r\n"
            "Content-Type: application/json\r\nX-GitHub-Event: issues\r\n"
            f"X-GitHub-Delivery: {uuid.uuid4()}\r\nX-Hub-Signature-256: {sign(body, SECRET)}\r\n\r\n"
        )
        self._writer.write(head.encode())
        await asyncio.sleep(0.02)
        self._writer.write(body)
        async with asyncio.timeout(PATIENCE):
            answer = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
            await self._reader.readexactly(int(re.search(r"content-length: (\d+)", answer)[1]))
        return int(answer.split()[1])

    async def get(self, path):
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"http://127.0.0.1:{self._port}{path}") as answer,
        ):
            return answer.status


async def read(bot):
    """How many deliveries the bot has read in which way."""
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    async with aiohttp.ClientSession() as http, http.get(f"{bot.url}/metrics", headers=headers) as answer:
        return {by: int(count) for by, count in READ.findall(await answer.text())}


async def test_deliveries_take_the_fast_path_whatever_else_the_proxy_passes_on(bot, name):
    async with behind(name, bot) as client:
        for size in (100, 9_000, 24_000, 50_000):
            assert await client.get("/healthz") == 200
            assert await client.deliver(size) == 202
        assert await read(bot) == {"fast_path": 4, "aiohttp": 0}
        for size in (300_000, 9_000, 20_000_000, 9_000):
            assert await client.deliver(size) == 202
        assert await read(bot) == {"fast_path": 6, "aiohttp": 2}


async def test_the_first_delivery_after_a_restart_is_taken(bot, name):
    with proxies.in_front(name, bot.port) as port:
        async with Client(port) as client:
            assert await client.deliver() == 202
        bot.kill()
        await bot.ended()
        async with Client(port) as client:
            assert await client.deliver() in {502, 503}
        answers = await bot.start()
        await asyncio.wait_for(answers.wait(), PATIENCE)
        async with Client(port) as client:
            assert await client.deliver() == 202
