"""The benchmarks and the load generator: what they measure is what they say."""

from __future__ import annotations

import asyncio
import hmac
import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from aiohttp import web

from benchmarks.support import generator
from benchmarks.support.load import SECRET

# Do the benchmarks still measure what they say? Short rounds, whose figures mean nothing.


ROOT = Path(__file__).parent.parent
SECONDS = 300  # one that takes longer hangs


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("callback", "--rounds 1 --seconds 0.3", marks=pytest.mark.nightly),
        pytest.param("hud", "--rows 100 --cells 2000 --seconds 0.5 --views 1", marks=pytest.mark.nightly),
        ("logs", "--rounds 1 --megabytes 1 --large 10 --compared 0.05 --searched 1"),
        pytest.param(
            "tests", "--rounds 1 --cases 2000 --files 4 --run-cases 3000", marks=pytest.mark.nightly
        ),
        ("monitor", "--seconds 2 --processes 5"),
        pytest.param("utilization", "--rounds 1 --views 1", marks=pytest.mark.nightly),
        pytest.param(
            "collect", "--rounds 1 --seconds 0.5 --jobs 4 --megabytes 0.1", marks=pytest.mark.nightly
        ),
        ("tasks", "--rounds 1 --events 5"),
        pytest.param(
            "providers", "--rounds 1 --events 90 --seconds 0.5 --settled 0", marks=pytest.mark.nightly
        ),
        pytest.param(
            "ingest", "--only half_load --rounds 1 --seconds 0.3 --settled 0", marks=pytest.mark.nightly
        ),
        pytest.param(
            "ingest",
            "--rounds 1 --seconds 1 --deliveries 500 --backlog 300 --view-rows 500 --rows 1000 --settled 0",
            marks=pytest.mark.nightly,
        ),
        pytest.param("sinks", "--rounds 1 --backlog 600 --objects 900", marks=pytest.mark.nightly),
        pytest.param("publish", "--minutes 2 --pushes 1", marks=pytest.mark.nightly),
        pytest.param("scale", "--rounds 1 --deliveries 20 --pushes 1", marks=pytest.mark.nightly),
    ],
)
async def test_a_benchmark_measures_and_nothing_in_it_is_refused(name, options):
    code, out, err = await run(name, options)
    assert code == 0, err[-2000:]
    measured = json.loads(out)
    assert measured["name"] == name
    refused = {key: count for key, count in measured["ours"].items() if "answers_other_than" in key}
    assert {key: count for key, count in refused.items() if count and not median_is_zero(count)} == {}
    assert any(measured["ours"].values())


@pytest.mark.parametrize("name", ["publish", pytest.param("scale", marks=pytest.mark.nightly)])
async def test_a_benchmark_with_a_story_of_the_tests_finds_them(name):
    code, out, err = await run(name, "--help")
    assert (code, f"dev.py bench {name}" in out) == (0, True), err[-2000:]


async def test_all_of_them_come_in_one_document_which_names_what_failed():
    code, out, err = await run("all", "--only monitor,tasks --minutes 0.05")
    document = json.loads(out)
    assert (code, document["name"], document["reach"]) == (1, "all", []), err[-2000:]
    assert document["failed"].keys() == {"monitor", "tasks"}
    assert document["failed"]["monitor"] == "did not end within 1 s"


def median_is_zero(figure):
    return isinstance(figure, dict) and figure["most"] == 0


async def run(name, options):
    command = [sys.executable, "-m", f"benchmarks.{name}", *options.split(), "--json"]
    pipe = asyncio.subprocess.PIPE
    running = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=pipe, stderr=pipe)
    try:
        out, err = await asyncio.wait_for(running.communicate(), SECONDS)
    finally:
        if running.returncode is None:
            running.kill()
    return running.returncode, out.decode(), err.decode()


# Does the load generator send what it was given, as often and as fast as it was told, and count what it gets?


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


@pytest.mark.logic
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


@pytest.mark.logic
async def test_it_ends_in_time_and_counts_refusals_and_broken_connections(site, kind):
    found = await load(site, [generator.webhook("push", b"bad")], seconds=0.2, connections=2)
    assert found["statuses"] == {"400": found["answers"]}
    assert found["answers"] > 0
    with pytest.raises(SystemExit, match="400"):
        generator.complete(found)
    async with asyncio.timeout(20):  # it ends when no connection is left
        found = await load(site, [generator.viewed("/drop")], seconds=60, connections=2)
    assert (found["answers"], found["errors"]) == (0, 2)


@pytest.mark.logic
async def test_paced_requests_count_from_when_they_were_due(site, kind):
    """One connection whose first answer takes 600 ms: of the requests due meanwhile the fifth has waited 400."""
    site.holding.clear()
    requests = [generator.webhook("push", b"{}")]
    found = await load(site, requests, seconds=20, count=10, rate=20, connections=1)
    assert found["answers"] == len(site.ids) == 10
    assert found["max_ms"] >= 400
    assert found["p50_ms"] >= 200
