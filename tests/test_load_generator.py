"""Does the load generator send what it was given, as often and as fast as it was told, and count what it gets?"""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter

import pytest
from aiohttp import web

from benchmarks.support import generator
from benchmarks.support.load import SECRET

pytestmark = pytest.mark.logic


class Site:
    """A server that remembers what it was sent."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.bodies: Counter[bytes] = Counter()
        self.signed = 0
        self.holding = asyncio.Event()
        self.holding.set()

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.ids.append(request.headers.get("X-GitHub-Delivery", ""))
        self.bodies[body] += 1
        digest = hmac.new(SECRET.encode(), body, "sha256").hexdigest()
        self.signed += request.headers.get("X-Hub-Signature-256") == f"sha256={digest}"
        if len(self.ids) == 1:
            asyncio.get_running_loop().call_later(0.6, self.holding.set)
        await self.holding.wait()
        return web.Response(status=400 if body == b"bad" else 202, text="x" * 100_000)

    async def drop(self, request: web.Request) -> web.Response:
        request.transport.close()
        return web.Response()


@pytest.fixture
async def site(aiohttp_server):
    site = Site()
    app = web.Application()
    app.add_routes([web.post(generator.WEBHOOKS, site.take), web.get("/drop", site.drop)])
    server = await aiohttp_server(app)
    site.port = server.port
    return site


@pytest.fixture(params=["load.c", "load.py"])
def kind(request, monkeypatch):
    """Both generators: the one that is compiled, and the one that stands in for it."""
    if request.param == "load.py":
        monkeypatch.setattr(generator, "program", lambda: generator.IN_PYTHON)
    return request.param


async def load(site, requests, **options):
    running = generator.Running(site.port, requests, **options)
    return await asyncio.to_thread(running.result)


async def test_each_request_is_a_delivery_of_its_own_and_signed(site, kind):
    bodies = [b'{"a": 1}', b'{"b": "%s"}' % (b"y" * 300_000)]
    requests = [generator.webhook("push", body) for body in bodies]
    found = await load(site, requests, seconds=20, count=40, connections=4)
    assert found["generator"] == kind
    assert (found["answers"], found["statuses"], found["errors"]) == (40, {"202": 40}, 0)
    assert site.bodies == dict.fromkeys(bodies, 20)
    assert site.signed == 40
    assert len(set(site.ids)) == 40
    assert {len(one) for one in site.ids} == {len(generator.NO_ID)}


async def test_it_ends_in_time_and_counts_refusals_and_broken_connections(site, kind):
    found = await load(site, [generator.webhook("push", b"bad")], seconds=0.2, connections=2)
    assert found["statuses"] == {"400": found["answers"]}
    assert found["answers"] > 0
    with pytest.raises(SystemExit, match="400"):
        generator.complete(found)
    async with asyncio.timeout(20):  # it ends when no connection is left
        found = await load(site, [generator.viewed("/drop")], seconds=60, connections=2)
    assert (found["answers"], found["errors"]) == (0, 2)


async def test_paced_requests_count_from_when_they_were_due(site, kind):
    """One connection whose first answer takes 600 ms: of the requests due meanwhile the fifth has waited 400."""
    site.holding.clear()
    requests = [generator.webhook("push", b"{}")]
    found = await load(site, requests, seconds=20, count=10, rate=20, connections=1)
    assert found["answers"] == len(site.ids) == 10
    assert found["max_ms"] >= 400
    assert found["p50_ms"] >= 200
