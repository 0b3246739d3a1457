"""Webhook bodies of real size, and the load generator in Python that stands in where load.c cannot be compiled."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import time

SECRET = "benchmark-benchmark"
DATE = "2026-11-01T10:00:00Z"
UNLIKE = 24  # characters of a URL that differ from those of all others


def workflow_job(size: int = 9_000) -> bytes:
    """A workflow_job body of about that many bytes."""
    steps = [
        {"name": f"Run step {n}", "status": "completed", "conclusion": "success", "number": n,
         "started_at": DATE, "completed_at": DATE}
        for n in range(1, 12)
    ]  # fmt: skip
    job = {
        "id": 1, "run_id": 2, "run_attempt": 1, "workflow_name": "CI", "name": "build", "status": "completed",
        "conclusion": "success", "head_sha": "a" * 40, "head_branch": "main", "labels": ["ubuntu-latest"],
        "runner_id": 1, "runner_name": "runner 1", "runner_group_id": 2, "runner_group_name": "default",
        "steps": steps, "created_at": DATE, "started_at": DATE, "completed_at": DATE,
        "html_url": "https://github.com/org/project/actions/runs/2/job/1",
    }  # fmt: skip
    return _padded({"action": "completed", "workflow_job": job, **_surroundings()}, size)


def pull_request(size: int = 24_000) -> bytes:
    """A pull_request body of about that many bytes."""
    side = {"ref": "main", "sha": "b" * 40, "label": "org:main", "user": {"login": "octocat", "id": 1}}
    pull = {
        "id": 3, "number": 7, "title": "Make it faster", "body": "text " * 200, "state": "open", "draft": False,
        "user": {"login": "octocat", "id": 1}, "labels": [{"name": "bug"}], "head": side, "base": side,
        "created_at": DATE, "updated_at": DATE, "author_association": "MEMBER",
    }  # fmt: skip
    return _padded({"action": "edited", "number": 7, "pull_request": pull, **_surroundings()}, size)


def _surroundings() -> dict:
    repository = {"id": 99, "full_name": "org/project", "name": "project", "private": False}
    return {"repository": repository, "installation": {"id": 5}, "sender": {"login": "octocat", "id": 1}}


def _padded(payload: dict, size: int) -> bytes:
    """Fill up with members as GitHub's bodies have, many short URLs: it shrinks as those do when it is compressed."""
    urls = {}
    while len(json.dumps(payload)) < size:
        for _ in range(10):
            drawn = hashlib.sha256(b"%d" % len(urls)).hexdigest()[:UNLIKE]
            urls[f"url_{len(urls)}"] = f"https://api.github.com/repos/org/project/things/{drawn}"
        payload["repository"]["urls"] = urls
    return json.dumps(payload).encode()


def signature_of(body: bytes) -> str:
    return hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()


class Connection(asyncio.Protocol):
    """One connection that is never idle, or paced when `interval` is set.

    A paced request counts from when it was due: what waits behind a slow answer is slow itself.
    """

    def __init__(self, load: Load, number: int):
        self.load, self.number = load, number
        self.answer, self.waiting = b"", False

    def connection_made(self, transport):
        self.transport = transport
        self.began = time.perf_counter()
        if interval := self.load.interval:
            self.began += interval * self.number / self.load.connections  # they take turns
            self.wait()
        else:
            self.send()

    def wait(self):
        asyncio.get_running_loop().call_later(max(self.began - time.perf_counter(), 0), self.send)

    def send(self):
        if time.perf_counter() >= self.load.end:
            self.load.closed(self.transport)
            return
        request = self.load.requests.next()
        if request is None:
            self.load.closed(self.transport)
            return
        self.waiting = True
        self.transport.write(request)

    def data_received(self, data):
        self.answer += data
        head, found, rest = self.answer.partition(b"\r\n\r\n")
        if not found:
            return
        length = 0
        for line in head.split(b"\r\n")[1:]:
            if line[:15].lower() == b"content-length:":
                length = int(line[15:])
        if len(rest) < length:
            return
        self.answer, self.waiting = b"", False
        self.load.took(head[9:12], time.perf_counter() - self.began)
        if self.load.interval:
            self.began += self.load.interval
            self.wait()
        else:
            self.began = time.perf_counter()
            self.send()

    def connection_lost(self, exc):
        if exc is not None or self.waiting:
            self.load.errors += 1
        self.load.closed(self.transport)


class Load:
    """A bounded load: so many connections for so many seconds, or until `requests.next()` returns None."""

    def __init__(self, requests, *, connections: int, seconds: float, rate: float | None = None):
        self.requests, self.connections, self.seconds = requests, connections, seconds
        self.interval = connections / rate if rate else None
        self.statuses: dict[str, int] = {}
        self.latencies: list[float] = []
        self.errors = 0
        self.ended: set = set()  # transports: one may be gone before the last is there

    def took(self, status: bytes, seconds: float) -> None:
        name = status.decode()
        self.statuses[name] = self.statuses.get(name, 0) + 1
        self.latencies.append(seconds)

    def closed(self, transport) -> None:
        transport.close()
        self.ended.add(transport)
        if len(self.ended) == self.connections and not self.done.done():
            self.done.set_result(None)

    async def run(self, host: str, port: int) -> dict:
        loop = asyncio.get_running_loop()
        self.done = loop.create_future()
        self.end = time.perf_counter() + self.seconds
        began, used = time.perf_counter(), time.process_time()
        for number in range(self.connections):
            await loop.create_connection(lambda turn=number: Connection(self, turn), host, port)
        await asyncio.wait_for(self.done, self.seconds + 60)
        took = time.perf_counter() - began
        ordered = sorted(self.latencies) or [0.0]
        shares = {f"p{part}_ms": ordered[(len(ordered) - 1) * part // 100] for part in (50, 90, 95, 99)}
        return {
            "generator": "load.py",
            "answers": len(self.latencies),
            "per_second": round(len(self.latencies) / took, 1),
            "statuses": self.statuses,
            "errors": self.errors,
            **{name: round(found * 1000, 2) for name, found in (shares | {"max_ms": ordered[-1]}).items()},
            "generator_cpu_share": round((time.process_time() - used) / took, 3),
        }


def pin(core: int, pid: int = 0) -> None:
    """Keep a process, this one by default, to one core, where the machine has several."""
    if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(pid, {core})
