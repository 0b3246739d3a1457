"""Does the bot serve everybody while a thousand senders are slow and twenty send all they may?"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import time
import uuid
from pathlib import Path

import aiohttp
import pytest

from tests.harness import SECRET, UPSTREAM, sign
from tests.process import Process, options_for, until
from tests.serving import request_head

MIB = 1024 * 1024
PATH = "/api/github/webhooks"
SLOW, LARGE = 1_000, 20
FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
STATUS = Path("/proc/self/status")

pytestmark = [
    pytest.mark.skipif(FILES < SLOW + 500, reason=f"{FILES} open files are too few for {SLOW} connections"),
    pytest.mark.skipif(not STATUS.exists(), reason="memory is read out of /proc"),
]


@pytest.fixture
async def process(tmp_path, app_key):
    made = Process(tmp_path, **options_for(tmp_path, private_key=app_key))
    ready = await made.start()
    await until(ready.is_set, what="a bot that answers")
    yield made
    made.kill()
    await made.ended()


class Crowd:
    """Slow senders, large bodies and ordinary visitors of one bot."""

    def __init__(self, process, http):
        self.process, self.http = process, http
        self.took: dict[str, list[float]] = {"/healthz": [], "/oot": [], "delivery": []}
        self.answers: list[int] = []
        self.over = asyncio.Event()

    async def slow(self):
        """Announce a body of 9 KB and send it byte by byte, again when cut off."""
        head = head_for(b" " * 9_000)
        while not self.over.is_set():
            async with connected(self.process.port) as (reader, writer):
                writer.write(head + b" " * 1_000)
                answer = asyncio.create_task(reader.read(1))
                while not answer.done() and not self.over.is_set():
                    writer.write(b" ")
                    await asyncio.wait([answer], timeout=0.5)
                answer.cancel()

    async def large(self, body):
        async with connected(self.process.port) as (reader, writer):
            writer.write(head_for(body))
            for start in range(0, len(body), MIB // 4):
                writer.write(body[start : start + MIB // 4])
                await writer.drain()
            self.answers.append(int((await reader.readuntil(b"\r\n")).split()[1]))

    async def visit(self, path):
        while not self.over.is_set():
            began = time.perf_counter()
            async with self.http.get(self.process.url + path) as answer:
                assert answer.status == 200
                await answer.read()
            self.took[path].append(time.perf_counter() - began)
            await asyncio.sleep(0.05)  # another process is at work

    async def deliver(self, body):
        while not self.over.is_set():
            began = time.perf_counter()
            async with self.http.post(self.process.url + PATH, data=body, headers=headers(body)) as answer:
                assert answer.status == 202
            self.took["delivery"].append(time.perf_counter() - began)
            await asyncio.sleep(0.05)  # another process is at work


def headers(body):
    return {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "X-GitHub-Event": "issues",
        "X-GitHub-Delivery": str(uuid.uuid4()),
        "X-Hub-Signature-256": sign(body, SECRET),
    }


def head_for(body):
    return request_head("POST", PATH, {name: value.encode() for name, value in headers(body).items()})


@contextlib.asynccontextmanager
async def connected(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


def issue(size):
    """An issue of that many bytes."""
    payload = {"action": "opened", "issue": {"id": 7, "number": 1, "title": "t", "body": ""},
               "repository": {"id": 5, "full_name": UPSTREAM}}  # fmt: skip
    payload["issue"]["body"] = "x" * (size - len(json.dumps(payload)))
    return json.dumps(payload).encode()


def peak_memory(process):
    """The most memory the process ever held, in MiB."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) / 1024


async def test_a_thousand_slow_senders_and_twenty_large_bodies_hold_nobody_up(process):
    largest, ordinary = issue(25 * MIB), issue(9_000)
    assert len(largest) == 25 * MIB
    async with aiohttp.ClientSession() as http:
        crowd = Crowd(process, http)
        waiting = [asyncio.create_task(crowd.slow()) for _ in range(SLOW)]
        visits = [crowd.visit("/healthz"), crowd.visit("/oot"), crowd.deliver(ordinary)]
        waiting += [asyncio.create_task(visit) for visit in visits]
        await asyncio.gather(*(crowd.large(largest) for _ in range(LARGE)))
        t0 = time.perf_counter()
        await until(lambda: not process.rows("SELECT 1 FROM delivery WHERE state = 'stored'"), what="an end of the work")
        print("worker tail", time.perf_counter()-t0)
        crowd.over.set()
        await asyncio.gather(*waiting)
    for k, v in crowd.took.items(): print(k, len(v), max(v), sorted(v)[len(v)//2])
    print(peak_memory(process), crowd.answers, process.said)
    assert crowd.answers == [202] * LARGE
    assert max(crowd.took["/healthz"] + crowd.took["/oot"]) < 0.5
    assert max(crowd.took["delivery"]) < 5
    assert peak_memory(process) < 600
