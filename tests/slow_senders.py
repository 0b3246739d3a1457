"""Who makes it hard for a bot? A thousand slow senders and twenty with the largest bodies, a process of their own.

Run as `slow_senders.py PORT`: prints what the large bodies were answered as JSON; the slow ones go on until it is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.harness import SECRET, UPSTREAM, UPSTREAM_ID, sign

MIB = 1024 * 1024
SLOW, LARGE = 1_000, 20


def issue(size: int) -> bytes:
    """An issue of that many bytes."""
    payload = {"action": "opened", "issue": {"id": 7, "number": 1, "title": "It is slow", "body": ""},
               "repository": {"id": UPSTREAM_ID, "full_name": UPSTREAM, "private": False}}  # fmt: skip
    payload["issue"]["body"] = "x" * (size - len(json.dumps(payload)))
    return json.dumps(payload).encode()


def head(body: bytes) -> bytes:
    """The head of a delivery, correctly signed."""
    return (
        "POST /api/github/webhooks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"X-GitHub-Event: issues\r\nX-GitHub-Delivery: {uuid.uuid4()}\r\n"
        f"X-Hub-Signature-256: {sign(body, SECRET)}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()


async def drip(port: int) -> None:
    """Send a body byte by byte, another one when cut off."""
    body = issue(9_000)
    begun = head(body) + body[:1_000]
    while True:
        async with connected(port) as (reader, writer):
            writer.write(begun)
            answered = asyncio.create_task(reader.read())
            while not answered.done():
                writer.write(b" ")
                await asyncio.wait([answered], timeout=1)
            answered.exception()


async def send(port: int, prefix: bytes, body: bytes) -> int:
    """Send a body as fast as it is taken, again when told to come back; returns the status of the last answer."""
    while True:
        async with connected(port) as (reader, writer):
            writer.write(prefix)
            for start in range(0, len(body), MIB // 4):
                writer.write(body[start : start + MIB // 4])
                await writer.drain()
            status = int((await reader.readline()).split()[1])
        if status not in {408, 503}:  # which the slowest machines answer
            return status


@contextlib.asynccontextmanager
async def connected(port: int):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def main(port: int) -> None:
    body = issue(25 * MIB)
    slow = [asyncio.create_task(drip(port)) for _ in range(SLOW)]
    statuses = await asyncio.gather(*(send(port, head(body), body) for _ in range(LARGE)))
    sys.stdout.write(json.dumps(statuses) + "\n")
    sys.stdout.flush()
    await asyncio.gather(*slow)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
