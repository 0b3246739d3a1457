"""Does the bot serve everybody while a thousand senders are slow and twenty send all they may?"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from pathlib import Path

import aiohttp
import pytest

from tests import slow_senders
from tests.chaos.scenario import percentile
from tests.process import PATIENCE, Process, options_for, until

FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
MOST_MEMORY = 700  # MiB; twice as much without a budget for large bodies
PATH = "/api/github/webhooks"

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(
        FILES < slow_senders.SLOW + 500,
        reason=f"{FILES} open files are too few for {slow_senders.SLOW} connections",
    ),
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read out of /proc"),
]


@pytest.fixture
async def process(tmp_path, app_key):
    made = Process(tmp_path, **options_for(tmp_path, private_key=app_key))
    ready = await made.start()
    await until(ready.is_set, what="a bot that answers")
    yield made
    made.kill()
    await made.ended()


@pytest.fixture
async def hard_times(process):
    """The slow senders, at work; what the large bodies are answered comes on its standard output."""
    made = await asyncio.create_subprocess_exec(
        sys.executable, slow_senders.__file__, str(process.port), stdout=asyncio.subprocess.PIPE
    )
    yield made
    made.kill()
    await made.communicate()


class Visitors:
    """Others who want something meanwhile."""

    def __init__(self, process, http):
        self.process, self.http = process, http
        self.seconds: dict[str, list[float]] = {"/healthz": [], "/oot": [], PATH: []}
        self.taken: list[bool] = []  # deliveries
        self.over = asyncio.Event()

    async def are_let_in(self):
        """Upstream's pages are for everybody once a delivery has said that it is public."""
        body = slow_senders.issue(9_000)
        while await self._timed("GET", "/oot") == 404:
            assert await self._timed("POST", PATH, data=body, headers=headers(body)) == 202

    async def look(self, path):
        while not self.over.is_set():
            assert await self._timed("GET", path) == 200

    async def deliver(self):
        body = slow_senders.issue(9_000)
        while not self.over.is_set():
            self.taken.append(await self._timed("POST", PATH, data=body, headers=headers(body)) == 202)

    async def _timed(self, method, path, **options):
        began = time.perf_counter()
        async with self.http.request(method, self.process.url + path, **options) as answer:
            await answer.read()
        self.seconds[path].append(time.perf_counter() - began)
        await asyncio.sleep(0.1)  # other processes are at work
        return answer.status


def headers(body):
    """A delivery's headers, with a GUID of its own."""
    lines = slow_senders.head(body).decode().splitlines()[2:-1]
    return dict(line.split(": ", 1) for line in lines)


def peak_memory(process):
    """The most memory the process ever held, in MiB."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) / 1024


async def test_a_thousand_slow_senders_and_twenty_large_bodies_hold_nobody_up(process, hard_times):
    began = time.perf_counter()
    async with aiohttp.ClientSession() as http:
        visitors = Visitors(process, http)
        await visitors.are_let_in()
        visits = [visitors.look("/healthz"), visitors.look("/oot"), visitors.deliver()]
        visiting = [asyncio.create_task(visit) for visit in visits]
        statuses = json.loads(await asyncio.wait_for(hard_times.stdout.readline(), PATIENCE))
        visitors.over.set()
        await asyncio.gather(*visiting)
    assert statuses == [202] * slow_senders.LARGE
    assert sum(visitors.taken) >= 0.9 * len(visitors.taken)  # disks may be slow
    took = time.perf_counter() - began
    most = {path: percentile(seconds, 90) for path, seconds in visitors.seconds.items()}
    # nobody waits for as much as one of the bodies
    assert most["/healthz"] < took / slow_senders.LARGE, (most, took)
    assert most["/oot"] < took / slow_senders.LARGE, (most, took)
    assert most[PATH] < took / 4, (most, took)  # commits are shared with large ones
    assert peak_memory(process) < MOST_MEMORY
